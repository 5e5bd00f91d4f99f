/*
 * What the loads of Java have in common: commands and answers, clients in numbers, a writer that meets a failure.
 *
 * A load reads one command in each line of standard input, such as "names what=mkdirs clients=64 run=r1 seconds=2",
 * and answers with one line of JSON. It ends with its input, so that it does not outlive who started it. It stays for
 * all rounds of a run: the just-in-time compiler is then as warm as that of a server.
 */

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

final class Load {
  private Load() {}

  interface Commands {
    /** Do what a command asks for, and return a line of JSON. */
    String answer(String command, Options options) throws Exception;
  }

  interface Opener {
    Commands open() throws Exception;
  }

  static void serve(Opener opener) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // what libraries print is no answer
    Commands commands = opener.open();
    answers.println("{\"ready\": 1}");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.trim().split(" ");
      String answer;
      try {
        answer = commands.answer(words[0], new Options(words));
      } catch (Throwable error) {
        error.printStackTrace();
        answer = "{\"error\": \"" + error.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}";
      }
      answers.println(answer);
      answers.flush();
    }
    Runtime.getRuntime().halt(0);
  }

  interface Step {
    void run() throws Exception;
  }

  /** A writer that acts without a pause, until it is asked for its longest wait since an instant. */
  static final class Outage extends Thread {
    private final Step step;
    private long lastEndNs = now();
    private long longestNs;
    private long sinceNs = Long.MAX_VALUE;
    private boolean over;
    private Exception failure;
    private long steps;

    Outage(Step step) {
      this.step = step;
      setDaemon(true);
    }

    @Override
    public void run() {
      try {
        while (!over) {
          long begun = now();
          step.run();
          stepped(begun, now());
        }
      } catch (Exception error) {
        synchronized (this) {
          failure = error;
          notifyAll();
        }
      }
    }

    private synchronized void stepped(long begun, long end) {
      steps++;
      if (end > sinceNs) {
        longestNs = Math.max(longestNs, end - Math.max(lastEndNs, sinceNs));
        over = begun > sinceNs;
      }
      lastEndNs = end;
      notifyAll();
    }

    /** Return once it has acted a few times. */
    synchronized String begun() throws Exception {
      while (steps < 3 && failure == null) {
        wait();
      }
      return answer();
    }

    /** Wait until something succeeds that was begun after this instant; return the longest wait since then. */
    synchronized String longestSince(long since) throws Exception {
      sinceNs = since;
      while (!over && failure == null) {
        wait();
      }
      return answer();
    }

    private String answer() throws Exception {
      if (failure != null) {
        throw failure;
      }
      return "{\"seconds\": " + longestNs / 1e9 + "}";
    }

    /** Nanoseconds since 1970, as who causes the failure counts them. */
    private static long now() {
      Instant instant = Instant.now();
      return instant.getEpochSecond() * 1_000_000_000L + instant.getNano();
    }
  }

  // -- many at once ------------------------------------------------------------------------------

  interface Task {
    long[] run(int number) throws Exception;
  }

  /** Run one task per client, each in a thread; return the time of all, and percentiles of their steps. */
  static String all(int clients, Task task) throws Exception {
    long[][] found = new long[clients][];
    Throwable[] failures = new Throwable[clients];
    Thread[] threads = new Thread[clients];
    long begun = System.nanoTime();
    for (int number = 0; number < clients; number++) {
      int mine = number;
      threads[number] = new Thread(() -> {
        try {
          found[mine] = task.run(mine);
        } catch (Throwable error) {
          failures[mine] = error;
        }
      });
      threads[number].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    double seconds = (System.nanoTime() - begun) / 1e9;
    for (Throwable failure : failures) {
      if (failure != null) {
        throw new Exception(failure);
      }
    }
    long[] steps = Arrays.stream(found).flatMapToLong(Arrays::stream).sorted().toArray();
    return String.format("{\"seconds\": %.6f, \"count\": %d, \"p50_ms\": %.4f, \"p99_ms\": %.4f}",
        seconds, steps.length, percentile(steps, 0.5), percentile(steps, 0.99));
  }

  private static double percentile(long[] sorted, double share) {
    return sorted.length == 0 ? 0 : sorted[Math.min(sorted.length - 1, (int) (sorted.length * share))] / 1e6;
  }

  static final class Times {
    private long[] nanoseconds = new long[1024];
    private int count;

    void add(long time) {
      if (count == nanoseconds.length) {
        nanoseconds = Arrays.copyOf(nanoseconds, 2 * count);
      }
      nanoseconds[count++] = time;
    }

    int count() {
      return count;
    }

    /** True before the first step, which everybody makes, however late a thread begins. */
    boolean first() {
      return count == 0;
    }

    long[] all() {
      return Arrays.copyOf(nanoseconds, count);
    }
  }

  static final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] words) {
      for (String word : Arrays.copyOfRange(words, 1, words.length)) {
        int sign = word.indexOf('=');
        values.put(word.substring(0, sign), word.substring(sign + 1));
      }
    }

    String text(String name) {
      String value = values.get(name);
      if (value == null) {
        throw new IllegalArgumentException("the command lacks " + name);
      }
      return value;
    }

    int number(String name) {
      return Integer.parseInt(text(name));
    }

    long longNumber(String name) {
      return Long.parseLong(text(name));
    }

    int number(String name, int otherwise) {
      return values.containsKey(name) ? number(name) : otherwise;
    }

    long until() {
      return System.nanoTime() + (long) (Double.parseDouble(values.getOrDefault("seconds", "1e6")) * 1e9);
    }
  }
}
