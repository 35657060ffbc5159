import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.function.Function;
import java.util.stream.Collectors;
import javax.tools.ToolProvider;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs command line tools by their main classes, one after the other in this JVM, as if each had one of its own.
 *
 * <p>Usage: java -cp "libs/*" RunTools.java FOLDER. A line of stdin is what the tool finds on its stdin, the main class
 * and the arguments, each in base64, separated by tabs; a main class that ends in ".java" is a source file, compiled
 * into FOLDER when it is first asked for. A line of stdout answers: exit code, what the tool printed on stdout and on
 * stderr, and the names of threads that live on, in base64 too. The end of stdin ends this JVM whatever runs.
 *
 * <p>What belongs to a process is given to each run: the three streams, the exit with its shutdown hooks, system
 * properties, the default handler of exceptions. A tool that calls System.exit instead of Kafka's Exit ends this JVM.
 */
public class RunTools {
    /** Threads of pools that outlive their first user by design and do nothing of their own. */
    private static final List<String> POOLS = List.of("ForkJoinPool.commonPool-", "metrics-meter-tick-thread");
    private static final long LINGER_MS = 500;

    /** Unwinds the thread that asked for an exit; no Exception, which tools catch. */
    private static class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    /** One run of a tool. Threads know theirs, as they inherit it from the thread that made them. */
    private static class Run {
        private static final InheritableThreadLocal<Run> OF_THREAD = new InheritableThreadLocal<>();
        private static volatile Run latest;

        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final InputStream in;
        final List<Thread> hooks = new ArrayList<>();
        final CountDownLatch over = new CountDownLatch(1);
        final ThreadGroup threads = new ThreadGroup("main") {
            @Override
            public void uncaughtException(Thread thread, Throwable thrown) {
                if (!(thrown instanceof Ended)) {
                    super.uncaughtException(thread, thrown);
                }
            }
        };
        private boolean isEnding;
        private boolean isOver;
        private int code;

        Run(byte[] input) {
            in = new ByteArrayInputStream(input);
            latest = this;
        }

        static Run current() {
            Run run = OF_THREAD.get();
            return run == null ? latest : run;
        }

        /** Starts the tool; {@code over} tells when it has ended. */
        void start(String name, String[] args) {
            Thread main = new Thread(threads, () -> main(name, args), "main");
            main.setContextClassLoader(ClassLoader.getSystemClassLoader());
            main.start();
        }

        private void main(String name, String[] args) {
            OF_THREAD.set(this);
            int result = 0;
            try {
                mainOf(name).invoke(null, (Object) args);
            } catch (InvocationTargetException e) {
                if (e.getCause() instanceof Ended) {
                    return;
                }
                System.err.print("Exception in thread \"main\" ");
                e.getCause().printStackTrace();
                result = 1;
            } catch (ReflectiveOperationException | IOException e) {
                System.err.println("Error: Could not find or load main class " + name + "\n" + e);
                result = 1;
            }
            try {
                awaitOthers();
            } catch (InterruptedException e) {
                result = 1;
            }
            end(result, true);
        }

        /** A JVM ends with the last thread that is no daemon. */
        private void awaitOthers() throws InterruptedException {
            for (Thread thread : alive()) {
                if (!thread.isDaemon() && !isPooled(thread) && thread != Thread.currentThread()) {
                    thread.join();
                }
            }
        }

        List<Thread> alive() {
            Thread[] found = new Thread[threads.activeCount() + 64];
            return List.of(Arrays.copyOf(found, threads.enumerate(found)));
        }

        synchronized void addHook(Thread hook) {
            hooks.add(hook);
        }

        /** The first exit decides; as in a process of its own, nothing is printed after it but by its hooks. */
        void end(int status, boolean hasHooks) {
            List<Thread> begun;
            synchronized (this) {
                if (isEnding) {
                    throw new Ended();
                }
                isEnding = true;
                code = status;
                begun = hasHooks ? List.copyOf(hooks) : List.of();
            }
            begun.forEach(Thread::start);
            try {
                for (Thread hook : begun) {
                    hook.join();
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            synchronized (this) {
                isOver = true;
            }
            over.countDown();
        }

        synchronized void print(ByteArrayOutputStream part, byte[] data, int offset, int length) {
            if (!isOver) {
                part.write(data, offset, length);
            }
        }

        /** Names of the threads that do not end although the tool has. */
        List<String> left() throws InterruptedException {
            for (boolean isInterrupting : new boolean[] {false, true}) {
                long deadline = System.currentTimeMillis() + LINGER_MS;
                for (Thread thread : alive()) {
                    if (isInterrupting && !isPooled(thread)) {
                        thread.interrupt();
                    }
                    if (!isPooled(thread)) {
                        thread.join(Math.max(1, deadline - System.currentTimeMillis()));
                    }
                }
            }
            return alive().stream().filter(one -> !isPooled(one)).map(Thread::getName).collect(Collectors.toList());
        }

        private static boolean isPooled(Thread thread) {
            return POOLS.stream().anyMatch(name -> thread.getName().startsWith(name));
        }
    }

    /** System.out or System.err for good, as Scala keeps the one that it finds first. */
    private static class Printer extends PrintStream {
        Printer(Function<Run, ByteArrayOutputStream> part) {
            super(new OutputStream() {
                @Override
                public void write(int one) {
                    write(new byte[] {(byte) one}, 0, 1);
                }

                @Override
                public void write(byte[] data, int offset, int length) {
                    Run run = Run.current();
                    if (run != null) {
                        run.print(part.apply(run), data, offset, length);
                    }
                }
            }, true, StandardCharsets.UTF_8);
        }

        @Override
        public void close() {
            flush(); // the next run prints too
        }
    }

    private static final InputStream INPUT = new InputStream() {
        @Override
        public int read() throws IOException {
            return Run.current().in.read();
        }

        @Override
        public int read(byte[] data, int offset, int length) throws IOException {
            return Run.current().in.read(data, offset, length);
        }

        @Override
        public int available() throws IOException {
            return Run.current().in.available();
        }
    };

    private static final Map<String, Class<?>> COMPILED = new HashMap<>();
    private static Path folder;

    private static Method mainOf(String name) throws ReflectiveOperationException, IOException {
        Class<?> found = name.endsWith(".java") ? compiled(Path.of(name))
            : Class.forName(name, true, ClassLoader.getSystemClassLoader());
        return found.getMethod("main", String[].class);
    }

    private static synchronized Class<?> compiled(Path source) throws ReflectiveOperationException, IOException {
        Class<?> found = COMPILED.get(source.toString());
        if (found == null) {
            String name = source.getFileName().toString().replaceFirst("\\.java$", "");
            Path classes = Files.createDirectories(folder.resolve(name));
            int result = ToolProvider.getSystemJavaCompiler().run(null, null, null, "-proc:none", "-nowarn",
                "-cp", System.getProperty("java.class.path"), "-d", classes.toString(), source.toString());
            if (result != 0) {
                throw new ClassNotFoundException(source + " does not compile");
            }
            found = new URLClassLoader(new URL[] {classes.toUri().toURL()}).loadClass(name);
            COMPILED.put(source.toString(), found);
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        folder = Path.of(arguments[0]);
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LoggerFactory.getILoggerFactory(); // what it has to say about itself belongs to no run
        System.setOut(new Printer(run -> run.out));
        System.setErr(new Printer(run -> run.err));
        System.setIn(INPUT);
        Exit.setExitProcedure((code, message) -> exit(code, true));
        Exit.setHaltProcedure((code, message) -> exit(code, false));
        Exit.setShutdownHookAdder((name, hook) -> Run.current().addHook(new Thread(hook, name)));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t", -1);
            // This thread stays at stdin, whose end is the end.
            new Thread(() -> serve(words, answers), "run").start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void exit(int code, boolean hasHooks) {
        Run.current().end(code, hasHooks);
        throw new Ended();
    }

    private static void serve(String[] words, PrintStream answers) {
        Base64.Decoder decoder = Base64.getDecoder();
        String[] args = new String[words.length - 1];
        for (int index = 0; index < args.length; index++) {
            args[index] = new String(decoder.decode(words[index + 1]), StandardCharsets.UTF_8);
        }
        Properties properties = (Properties) System.getProperties().clone();
        Run run = new Run(decoder.decode(words[0]));
        List<String> left;
        try {
            run.start(args[0], Arrays.copyOfRange(args, 1, args.length));
            run.over.await();
            left = run.left();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
        System.setProperties(properties);
        Thread.setDefaultUncaughtExceptionHandler(null);
        Base64.Encoder encoder = Base64.getEncoder();
        answers.println(run.code + "\t" + encoder.encodeToString(run.out.toByteArray()) + "\t"
            + encoder.encodeToString(run.err.toByteArray()) + "\t"
            + encoder.encodeToString(String.join(", ", left).getBytes(StandardCharsets.UTF_8)));
        answers.flush();
    }
}
