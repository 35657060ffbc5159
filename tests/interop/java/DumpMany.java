// Runs DumpLogSegments once for each line of stdin, whose arguments are separated by tabs, in one JVM.
// Into the folder given go N.out and N.err with what it printed, and N.end with "0" or the class of the exception.

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

public class DumpMany {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int number = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine(), number++) {
            String end = "0";
            try (PrintStream out = stream(folder.resolve(number + ".out")); PrintStream err = stream(folder.resolve(number + ".err"))) {
                System.setOut(out);
                System.setErr(err);
                try {
                    org.apache.kafka.tools.DumpLogSegments.main(line.split("\t"));
                } catch (Throwable thrown) {
                    end = thrown.getClass().getName() + ": " + thrown.getMessage();
                }
            }
            Files.writeString(folder.resolve(number + ".end"), end);
        }
    }

    private static PrintStream stream(Path path) throws Exception {
        return new PrintStream(new BufferedOutputStream(new FileOutputStream(path.toFile()), 1 << 16), false, StandardCharsets.UTF_8);
    }
}
