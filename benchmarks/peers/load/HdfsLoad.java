/* Load on an HDFS cluster, through HDFS's own client. Load.java says how it is told what to do. */

import java.net.URI;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;

public final class HdfsLoad implements Load.Commands {
  private static final int MIB = 1 << 20;
  private static final long BLOCK_BYTES = 128L * MIB;

  private final Configuration configuration = new Configuration();
  private final URI uri;
  private final DistributedFileSystem fs;
  private Load.Outage outage;

  private HdfsLoad(String address) throws Exception {
    uri = new URI("hdfs://" + address);
    fs = open();
  }

  public static void main(String[] arguments) throws Exception {
    Load.serve(() -> new HdfsLoad(arguments[0]));
  }

  private DistributedFileSystem open() throws Exception {
    DistributedFileSystem opened = new DistributedFileSystem();
    opened.initialize(uri, configuration);
    return opened;
  }

  @Override
  public String answer(String command, Load.Options options) throws Exception {
    switch (command) {
      case "ready": return ready(options);
      case "reported": return reported(options);
      case "write": return write(options);
      case "read": return read(options);
      case "pread": return pread(options);
      case "names": return names(options);
      case "small": return small(options);
      case "durable": return durable(options);
      case "outage-begin": return beginOutage(options);
      case "outage-end": return outage.longestSince(options.longNumber("since"));
      case "abandon": return abandon(options);
      case "take-over": return takeOver(options);
      case "web": return web(options);
      default: throw new IllegalArgumentException("no command " + command);
    }
  }

  // -- bytes -------------------------------------------------------------------------------------

  private FSDataOutputStream create(DistributedFileSystem by, Path path, boolean disk) throws Exception {
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
    if (disk) {
      flags.add(CreateFlag.SYNC_BLOCK); // each block is forced to disk as it is closed
    }
    return by.create(path, FsPermission.getFileDefault(), flags, 64 * 1024, (short) 3, BLOCK_BYTES, null);
  }

  private String write(Load.Options options) throws Exception {
    byte[] piece = new byte[MIB];
    new Random(1).nextBytes(piece);
    int streams = options.number("streams");
    int each = options.number("mib") / streams;
    boolean disk = options.number("disk") == 1;
    return Load.all(streams, stream -> {
      try (FSDataOutputStream out = create(fs, path(options, stream), disk)) {
        for (int written = 0; written < each; written++) {
          out.write(piece);
        }
      }
      return new long[0];
    });
  }

  private String read(Load.Options options) throws Exception {
    AtomicLong bytes = new AtomicLong();
    String times = Load.all(options.number("streams"), stream -> {
      byte[] piece = new byte[MIB];
      try (FSDataInputStream in = fs.open(path(options, stream), MIB)) {
        for (int read = in.read(piece); read >= 0; read = in.read(piece)) {
          bytes.addAndGet(read);
        }
      }
      return new long[0];
    });
    return times.replace("}", ", \"bytes\": " + bytes + "}");
  }

  private String pread(Load.Options options) throws Exception {
    long until = options.until();
    int size = options.number("bytes");
    return Load.all(options.number("clients"), client -> {
      Load.Times times = new Load.Times();
      byte[] piece = new byte[size];
      Random random = new Random(client);
      try (FSDataInputStream in = fs.open(path(options, 0))) {
        int pieces = (int) (fs.getFileStatus(path(options, 0)).getLen() / size);
        for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
          in.readFully((long) random.nextInt(pieces) * size, piece);
          times.add(System.nanoTime() - begun);
        }
      }
      return times.all();
    });
  }

  private String durable(Load.Options options) throws Exception {
    int clients = options.number("clients");
    HdfsDataOutputStream[] outs = new HdfsDataOutputStream[clients];
    byte[] piece = new byte[options.number("bytes")];
    for (int client = 0; client < clients; client++) {
      outs[client] = (HdfsDataOutputStream) create(fs, path(options, client), false);
      flush(outs[client], piece);
    }
    long until = options.until();
    String found = Load.all(clients, client -> {
      Load.Times times = new Load.Times();
      for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
        flush(outs[client], piece);
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
    for (HdfsDataOutputStream out : outs) {
      out.close();
    }
    return found;
  }

  private static void flush(HdfsDataOutputStream out, byte[] piece) throws Exception {
    out.write(piece);
    out.hsync(EnumSet.noneOf(SyncFlag.class)); // forced to disk at each replica; the NameNode is not told
  }

  private String small(Load.Options options) throws Exception {
    byte[] piece = new byte[options.number("bytes")];
    boolean disk = options.number("disk") == 1;
    long until = options.until();
    return Load.all(options.number("clients"), client -> {
      Load.Times times = new Load.Times();
      for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
        try (FSDataOutputStream out = create(fs, new Path(path(options, client), "f" + times.count()), disk)) {
          out.write(piece);
        }
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
  }

  // -- names -------------------------------------------------------------------------------------

  private String names(Load.Options options) throws Exception {
    int clients = options.number("clients");
    int count = options.number("count", Integer.MAX_VALUE);
    String what = options.text("what");
    long until = options.until();
    return Load.all(clients, client -> {
      Load.Times times = new Load.Times();
      String mine = "/" + options.text("run") + "/" + client;
      for (long begun = System.nanoTime(); times.first() || (begun < until && times.count() < count); begun = System.nanoTime()) {
        if (!name(what, mine, times.count())) {
          break; // no more of what was made before
        }
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
  }

  private boolean name(String what, String mine, int number) throws Exception {
    switch (what) {
      case "mkdirs": return fs.mkdirs(new Path(mine + "/" + number));
      case "stat": return fs.getFileStatus(new Path(mine)) != null;
      case "list": return fs.listStatus(new Path(mine + "/0")) != null;
      case "rename": // there and back
        Path there = new Path(mine + "/0");
        Path moved = new Path(mine + "/moved");
        return number % 2 == 0 ? fs.rename(there, moved) : fs.rename(moved, there);
      case "delete": return fs.delete(new Path(mine + "/" + (number + 1)), true);
      case "create":
        create(fs, new Path(mine + "/f" + number), false).close();
        return true;
      default: throw new IllegalArgumentException("no call " + what);
    }
  }

  // -- WebHDFS, at any server --------------------------------------------------------------------

  /** Write a file again and again, or read it, or ask for its status: each client its own. */
  private String web(Load.Options options) throws Exception {
    FileSystem there = FileSystem.get(new URI("webhdfs://" + options.text("at")), configuration);
    String what = options.text("what");
    int bytes = options.number("bytes");
    byte[] piece = new byte[Math.min(bytes, MIB)];
    new Random(1).nextBytes(piece);
    long until = options.until();
    return Load.all(options.number("clients"), client -> {
      Load.Times times = new Load.Times();
      Path path = path(options, client);
      byte[] mine = piece.clone();
      for (long begun = System.nanoTime(); times.first() || begun < until; begun = System.nanoTime()) {
        switch (what) {
          case "write": webWrite(there, path, mine, bytes); break;
          case "read": webRead(there, path, mine, bytes); break;
          case "stat": there.getFileStatus(path); break;
          default: throw new IllegalArgumentException("nothing is " + what);
        }
        times.add(System.nanoTime() - begun);
      }
      return times.all();
    });
  }

  private static void webWrite(FileSystem there, Path path, byte[] piece, int bytes) throws Exception {
    try (FSDataOutputStream out = there.create(path, true)) {
      for (int written = 0; written < bytes; written += piece.length) {
        out.write(piece);
      }
    }
  }

  private static void webRead(FileSystem there, Path path, byte[] piece, int bytes) throws Exception {
    int found = 0;
    try (FSDataInputStream in = there.open(path)) {
      for (int read = in.read(piece); read >= 0; read = in.read(piece)) {
        found += read;
      }
    }
    if (found != bytes) {
      throw new IllegalStateException(found + " bytes of " + bytes);
    }
  }

  // -- failures ----------------------------------------------------------------------------------

  private String beginOutage(Load.Options options) throws Exception {
    byte[] piece = new byte[options.number("bytes")];
    HdfsDataOutputStream out = (HdfsDataOutputStream) create(fs, path(options, 0), false);
    flush(out, piece);
    while (out.getCurrentBlockReplication() < 3) { // a DataNode that was started anew is not there yet
      out.close();
      Thread.sleep(100);
      out = (HdfsDataOutputStream) create(fs, path(options, 0), false);
      flush(out, piece);
    }
    HdfsDataOutputStream whole = out;
    outage = new Load.Outage(() -> {
      whole.write(piece);
      whole.hflush();
    });
    outage.start();
    return outage.begun();
  }

  private String abandon(Load.Options options) throws Exception {
    FSDataOutputStream out = create(open(), path(options, 0), false); // by another client, as leases know them
    out.write(new byte[MIB]);
    out.hflush();
    return "{\"ready\": 1}";
  }

  private String takeOver(Load.Options options) throws Exception {
    long begun = System.nanoTime();
    boolean closed = fs.recoverLease(path(options, 0));
    while (!closed) {
      Thread.sleep(5);
      closed = fs.isFileClosed(path(options, 0));
    }
    return "{\"seconds\": " + (System.nanoTime() - begun) / 1e9 + "}";
  }

  // -- the cluster -------------------------------------------------------------------------------

  /** Wait until so many DataNodes are there and the NameNode lets others write. */
  private String ready(Load.Options options) throws Exception {
    int wanted = options.number("datanodes");
    while (fs.setSafeMode(SafeModeAction.GET)
        || fs.getDataNodeStats(HdfsConstants.DatanodeReportType.LIVE).length < wanted) {
      Thread.sleep(10);
    }
    return "{\"ready\": 1}";
  }

  /** Wait until so many DataNodes have reported their blocks since then, in milliseconds since 1970. */
  private String reported(Load.Options options) throws Exception {
    long since = options.longNumber("since");
    int wanted = options.number("datanodes");
    while (Arrays.stream(fs.getDataNodeStats()).filter(node -> node.getLastBlockReportTime() >= since).count() < wanted) {
      Thread.sleep(5);
    }
    return "{\"ready\": 1}";
  }

  private static Path path(Load.Options options, int number) {
    return new Path("/" + options.text("run") + "/" + number);
  }
}
