import java.io.File;
import java.lang.management.ManagementFactory;
import org.apache.kafka.common.record.internal.FileRecords;

/**
 * Reads segment files with Kafka's own FileRecords, as a broker's tools would: every record's key and value are looked at.
 * Arguments: how many passes, then the files. Each pass prints the records, the bytes of values, and the CPU seconds of
 * this thread; the first ones are slow, as the compiler has not seen the loop yet.
 */
public class ReadFiles {
    public static void main(String[] arguments) throws Exception {
        int passes = Integer.parseInt(arguments[0]);
        var clock = ManagementFactory.getThreadMXBean();
        for (int pass = 0; pass < passes; pass++) {
            long started = clock.getCurrentThreadCpuTime();
            long count = 0, bytes = 0;
            for (int at = 1; at < arguments.length; at++) {
                try (FileRecords records = FileRecords.open(new File(arguments[at]), false)) {
                    for (var batch : records.batches()) {
                        batch.ensureValid();
                        for (var record : batch) {
                            count++;
                            bytes += record.value() == null ? 0 : record.value().remaining();
                        }
                    }
                }
            }
            System.out.println(count + " " + bytes + " " + (clock.getCurrentThreadCpuTime() - started) / 1e9);
        }
    }
}
