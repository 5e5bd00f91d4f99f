import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.URI;
import java.security.PrivilegedExceptionAction;
import java.util.HashSet;
import java.util.Set;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeys;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractBondedFSContract;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractGetEnclosingRoot;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractSetTimesTest;
import org.apache.hadoop.fs.contract.AbstractContractUnbufferTest;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.web.TestWebHdfsFileSystemContract;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.Before;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Hadoop's own tests of a file system at a server that speaks WebHDFS, and HDFS's own server.
 *
 * <p>{@code ADDRESS FILE} runs the tests and writes a line for each: passed, failed or skipped, a
 * tab, the test, a tab, why. {@code serve FILE} starts HDFS and writes its address.
 */
public final class WebHdfsSuites {
  private static String address;

  /** What HDFS's own contract says of itself, as far as WebHDFS has it. */
  static final class Contract extends AbstractBondedFSContract {
    private static final String[] TRUE = {
      "test.root-tests-enabled", "is-case-sensitive", "supports-append",
      "supports-atomic-directory-delete", "supports-atomic-rename", "supports-block-locality",
      "supports-concat", "supports-seek", "rejects-seek-past-eof", "supports-strict-exceptions",
      "supports-unix-permissions", "rename-returns-false-if-dest-exists",
      "rename-returns-false-if-source-missing", "supports-settimes", "supports-getfilestatus",
      "supports-content-check", "supports-positioned-readable",
    };

    Contract(Configuration settings) {
      super(settings);
      for (String each : TRUE) {
        settings.setBoolean("fs.contract." + each, true);
      }
      settings.setInt("fs.contract.test.random-seek-count", 100);
      settings.set("fs.contract.test.fs.webhdfs", "webhdfs://" + address);
    }

    @Override
    public String getScheme() {
      return "webhdfs";
    }
  }

  public static class Append extends AbstractContractAppendTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class BulkDelete extends AbstractContractBulkDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Concat extends AbstractContractConcatTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class ContentSummary extends AbstractContractContentSummaryTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Create extends AbstractContractCreateTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Delete extends AbstractContractDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class GetEnclosingRoot extends AbstractContractGetEnclosingRoot {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class GetFileStatus extends AbstractContractGetFileStatusTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Mkdir extends AbstractContractMkdirTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Open extends AbstractContractOpenTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Rename extends AbstractContractRenameTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class RootDirectory extends AbstractContractRootDirectoryTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Seek extends AbstractContractSeekTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class SetTimes extends AbstractContractSetTimesTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class Unbuffer extends AbstractContractUnbufferTest {
    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  public static class VectoredRead extends AbstractContractVectoredReadTest {
    public VectoredRead(String bufferType) {
      super(bufferType);
    }

    @Override
    protected AbstractFSContract createContract(Configuration settings) {
      return new Contract(settings);
    }
  }

  /** The contract of a file system, with what HDFS adds to it for WebHDFS. */
  public static class FileSystemContract extends TestWebHdfsFileSystemContract {
    @Override
    @Before
    public void setUp() throws Exception {
      fs = opened();
      UserGroupInformation who = UserGroupInformation.getCurrentUser();
      Field asks = TestWebHdfsFileSystemContract.class.getDeclaredField("ugi");
      asks.setAccessible(true);
      asks.set(this, who);
      fs.mkdirs(new Path(getDefaultWorkingDirectory()));
    }

    @Override
    protected String getDefaultWorkingDirectory() {
      return fs.getWorkingDirectory().toUri().getPath();
    }
  }

  public static class MainOperations extends FSMainOperationsBaseTest {
    public MainOperations() {
      super("/main-operations");
    }

    @Override
    protected FileSystem createFileSystem() throws Exception {
      // HDFS lets its superuser read everything, so that another user asks.
      return UserGroupInformation.createRemoteUser("ann")
          .doAs((PrivilegedExceptionAction<FileSystem>) WebHdfsSuites::opened);
    }

    @Override
    protected Path getDefaultWorkingDirectory() throws java.io.IOException {
      return fSys.getWorkingDirectory();
    }
  }

  private static final Class<?>[] ALL = {
    Append.class, BulkDelete.class, Concat.class, ContentSummary.class, CopyFromLocal.class,
    Create.class, Delete.class, GetEnclosingRoot.class, GetFileStatus.class, Mkdir.class,
    Open.class, Rename.class, Seek.class, SetTimes.class, Unbuffer.class,
    VectoredRead.class, FileSystemContract.class, MainOperations.class, RootDirectory.class,
  };

  private static FileSystem opened() throws java.io.IOException {
    Configuration settings = new HdfsConfiguration();
    settings.set(CommonConfigurationKeys.FS_PERMISSIONS_UMASK_KEY, "062");
    return FileSystem.newInstance(URI.create("webhdfs://" + address), settings);
  }

  private static final class Results extends RunListener {
    private final PrintStream out;
    private final Set<Description> told = new HashSet<>();

    Results(PrintStream out) {
      this.out = out;
    }

    @Override
    public void testFailure(Failure failure) {
      tell("failed", failure.getDescription(), String.valueOf(failure.getException()));
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
      tell("skipped", failure.getDescription(), String.valueOf(failure.getException()));
    }

    @Override
    public void testIgnored(Description test) {
      tell("skipped", test, "ignored");
    }

    @Override
    public void testFinished(Description test) {
      tell("passed", test, "");
    }

    private void tell(String verdict, Description test, String why) {
      if (told.add(test)) {
        String name = test.getTestClass().getSimpleName() + "." + test.getMethodName();
        out.println(verdict + "\t" + name + "\t" + why.replaceAll("\\s+", " "));
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("serve")) {
      serve(new File(arguments[1]));
    } else {
      address = arguments[0];
      test(arguments[1]);
    }
    System.exit(0); // threads of Hadoop's clients are left
  }

  private static void test(String results) throws Exception {
    JUnitCore core = new JUnitCore();
    try (PrintStream out = new PrintStream(results, "UTF-8")) {
      core.addListener(new Results(out));
      core.run(ALL);
    }
  }

  /** Serves until standard input ends. */
  private static void serve(File told) throws Exception {
    Configuration settings = new HdfsConfiguration();
    settings.setLong(DFSConfigKeys.DFS_NAMENODE_MIN_BLOCK_SIZE_KEY, 0);
    File folder = new File(told.getParent(), "hdfs");
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(settings, folder).numDataNodes(3).build();
    hdfs.waitActive();
    hdfs.getFileSystem().setPermission(new Path("/"), new FsPermission((short) 0777));
    try (PrintStream out = new PrintStream(told, "UTF-8")) {
      out.println(settings.get(DFSConfigKeys.DFS_NAMENODE_HTTP_ADDRESS_KEY));
    }
    while (System.in.read() != -1) {
      // it says nothing
    }
    hdfs.shutdown();
  }

  private WebHdfsSuites() {}
}
