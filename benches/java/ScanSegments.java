import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.internal.FileRecords;

/**
 * Reads segment files with Kafka's own FileRecords, one thread: every batch checked, key and value of each record
 * looked at. Arguments: passes, files. Prints for each pass the records, CPU nanoseconds of the process, its collector
 * included, and wall nanoseconds; the first passes warm the compiler up.
 */
public class ScanSegments {
    static long sink;

    public static void main(String[] arguments) throws Exception {
        int passes = Integer.parseInt(arguments[0]);
        List<File> files = new ArrayList<>();
        for (int at = 1; at < arguments.length; at++) {
            files.add(new File(arguments[at]));
        }
        var process = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        for (int pass = 0; pass < passes; pass++) {
            long cpu = process.getProcessCpuTime(), wall = System.nanoTime(), count = 0;
            for (File file : files) {
                try (FileRecords records = FileRecords.open(file, false)) {
                    for (var batch : records.batches()) {
                        batch.ensureValid();
                        for (var record : batch) {
                            count++;
                            sink += record.offset() + record.timestamp();
                            sink += record.key() == null ? 0 : record.key().remaining();
                            sink += record.value() == null ? 0 : record.value().remaining();
                        }
                    }
                }
            }
            cpu = process.getProcessCpuTime() - cpu;
            System.out.println(count + " " + cpu + " " + (System.nanoTime() - wall));
        }
    }
}
