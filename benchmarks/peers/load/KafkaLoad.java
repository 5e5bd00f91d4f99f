/* Load on three brokers of Kafka, through its own producer. Load.java says how it is told what to do. */

import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class KafkaLoad implements Load.Commands {
  private final Admin admin;
  private final KafkaProducer<byte[], byte[]> producer;

  private KafkaLoad(String brokers) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    admin = Admin.create(settings);
    settings.put("acks", "all");
    settings.put("linger.ms", "0"); // each writer waits for its own record: to wait for others only delays it
    producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
  }

  public static void main(String[] arguments) throws Exception {
    Load.serve(() -> new KafkaLoad(arguments[0]));
  }

  @Override
  public String answer(String command, Load.Options options) throws Exception {
    switch (command) {
      case "ready": return ready(options.number("brokers"));
      case "durable": return durable(options);
      default: throw new IllegalArgumentException("no command " + command);
    }
  }

  /** Wait until all brokers are in the cluster. */
  private String ready(int brokers) throws Exception {
    for (int attempt = 0; admin.describeCluster().nodes().get().size() < brokers; attempt++) {
      if (attempt == 600) {
        throw new IllegalStateException("not all brokers joined");
      }
      Thread.sleep(100);
    }
    return "{\"ready\": 1}";
  }

  /** A partition of three replicas for each writer, as each of ours has a file, or one that all of them share. */
  private String durable(Load.Options options) throws Exception {
    int clients = options.number("clients");
    boolean shared = options.number("shared") == 1;
    String topic = options.text("run") + (shared ? "-shared" : "");
    byte[] entry = new byte[options.number("bytes")];
    admin.createTopics(Collections.singleton(new NewTopic(topic, shared ? 1 : clients, (short) 3))).all().get();
    for (int number = 0; number < clients; number++) {
      producer.send(new ProducerRecord<>(topic, shared ? 0 : number, null, entry)).get();
    }
    long until = options.until();
    return Load.all(clients, number -> {
      Load.Times times = new Load.Times();
      for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
        producer.send(new ProducerRecord<>(topic, shared ? 0 : number, null, entry)).get();
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
  }
}
