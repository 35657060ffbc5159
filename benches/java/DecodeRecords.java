import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Scanner;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Decodes a file of record batches with Kafka's own classes each time a line comes in, and answers with the number of
 * records: the key and value of each are looked at as a client would. Arguments: the file, and how many times.
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
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        int times = Integer.parseInt(arguments[1]);
        for (int warmUp = 0; warmUp < 60; warmUp++) {
            decode(bytes);
        }
        Scanner lines = new Scanner(System.in);
        System.out.println("ready");
        while (lines.hasNextLine()) {
            lines.nextLine();
            long count = 0;
            for (int time = 0; time < times; time++) {
                count += decode(bytes);
            }
            System.out.println(count);
        }
    }
}
