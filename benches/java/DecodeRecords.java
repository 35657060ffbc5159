import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Scanner;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Decodes files of record batches with Kafka's own classes: the key and value of each record are looked at as a client
 * would. Lines on standard input: "load PATH" reads a file and warms up on it, any other line has it decoded as many
 * times as the first argument says; each is answered by a line with the number of records.
 */
public class DecodeRecords {
    static long sink;

    static long decode(ByteBuffer bytes) {
        long count = 0;
        for (var batch : MemoryRecords.readableRecords(bytes.duplicate()).batches()) {
            batch.ensureValid();
            for (var record : batch) {
                count++;
                sink += record.offset() + record.timestamp();
                sink += record.key() == null ? 0 : record.key().remaining();
                sink += record.value() == null ? 0 : record.value().remaining();
            }
        }
        return count;
    }

    public static void main(String[] arguments) throws Exception {
        int times = Integer.parseInt(arguments[0]);
        ByteBuffer bytes = ByteBuffer.allocate(0);
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            long count = 0;
            if (line.startsWith("load ")) {
                bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(line.substring(5))));
                long end = System.nanoTime() + 300_000_000L;
                for (int warmUp = 0; warmUp < 40 && System.nanoTime() < end; warmUp++) {
                    count = decode(bytes);
                }
            } else {
                for (int time = 0; time < times; time++) {
                    count += decode(bytes);
                }
            }
            System.out.println(count);
        }
    }
}
