/* Load on a BookKeeper cluster, through its own client. Load.java says how it is told what to do. */

import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

public final class BookKeeperLoad implements Load.Commands {
  private final BookKeeper client;
  private Load.Outage outage;

  private BookKeeperLoad(String metadata) throws Exception {
    ClientConfiguration configuration = new ClientConfiguration();
    configuration.setMetadataServiceUri(metadata);
    configuration.setDelayEnsembleChange(true); // with three bookies there is none to replace one that fails
    client = BookKeeper.newBuilder(configuration).build();
  }

  public static void main(String[] arguments) throws Exception {
    Load.serve(() -> new BookKeeperLoad(arguments[0]));
  }

  @Override
  public String answer(String command, Load.Options options) throws Exception {
    switch (command) {
      case "ready": return ready();
      case "durable": return durable(options);
      case "outage-begin": return beginOutage(options);
      case "outage-end": return outage.longestSince(options.longNumber("since"));
      default: throw new IllegalArgumentException("no command " + command);
    }
  }

  /** A ledger on three bookies, so many of which must have forced an entry to disk before it is acknowledged. */
  private WriteHandle ledger(int acknowledged) throws Exception {
    return client.newCreateLedgerOp()
        .withEnsembleSize(3)
        .withWriteQuorumSize(3)
        .withAckQuorumSize(acknowledged)
        .withDigestType(DigestType.CRC32C)
        .withPassword(new byte[0])
        .execute()
        .get();
  }

  /** Wait until there are bookies enough for a ledger. */
  private String ready() throws Exception {
    for (int attempt = 0; ; attempt++) {
      try {
        ledger(2).close();
        return "{\"ready\": 1}";
      } catch (Exception error) {
        if (attempt == 600) {
          throw error;
        }
        Thread.sleep(100);
      }
    }
  }

  private String durable(Load.Options options) throws Exception {
    int clients = options.number("clients");
    byte[] entry = new byte[options.number("bytes")];
    WriteHandle[] ledgers = new WriteHandle[clients];
    for (int number = 0; number < clients; number++) {
      ledgers[number] = ledger(options.number("acks"));
      ledgers[number].append(entry);
    }
    long until = options.until();
    String found = Load.all(clients, number -> {
      Load.Times times = new Load.Times();
      for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
        ledgers[number].append(entry);
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
    for (WriteHandle ledger : ledgers) {
      ledger.close();
    }
    return found;
  }

  private String beginOutage(Load.Options options) throws Exception {
    WriteHandle ledger = ledger(2);
    byte[] entry = new byte[options.number("bytes")];
    outage = new Load.Outage(() -> ledger.append(entry));
    outage.start();
    return outage.begun();
  }
}
