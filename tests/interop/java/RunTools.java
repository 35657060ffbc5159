import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs several of Kafka's tools in one JVM. A line of input is a main class and its arguments, separated by tabs; a
 * line of output is the exit code, and what it printed on stdout and on stderr, in base64.
 */
public class RunTools {
    private static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] unused) throws Exception {
        PrintStream console = System.out;
        Exit.setExitProcedure((code, message) -> {
            throw new Ended(code);
        });
        Exit.setHaltProcedure((code, message) -> {
            throw new Ended(code);
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            PrintStream errors = System.err;
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            int code = 0;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (java.lang.reflect.InvocationTargetException e) {
                if (e.getCause() instanceof Ended) {
                    code = ((Ended) e.getCause()).code;
                } else {
                    // What java itself would print with a stack trace, and end with 1.
                    code = 1;
                    System.err.println(e.getCause().getMessage());
                }
            } finally {
                System.setOut(console);
                System.setErr(errors);
            }
            Base64.Encoder base64 = Base64.getEncoder();
            console.println(code + " " + base64.encodeToString(out.toByteArray()) + " "
                + base64.encodeToString(err.toByteArray()));
        }
    }
}
