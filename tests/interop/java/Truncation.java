import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Seeks to an offset with its leader epoch and prints "position divergingOffset divergingEpoch" of the truncation.
 * java -cp "libs/*" Truncation.java BOOTSTRAP TOPIC OFFSET LEADER_EPOCH
 */
public class Truncation {
    public static void main(String[] args) {
        var partition = new TopicPartition(args[1], 0);
        var bytes = new ByteArrayDeserializer();
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "auto.offset.reset", "none", "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, new OffsetAndMetadata(Long.parseLong(args[2]), Optional.of(Integer.parseInt(args[3])), ""));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200));
            }
            System.out.println("no truncation");
        } catch (LogTruncationException truncated) {
            OffsetAndMetadata diverging = truncated.divergentOffsets().get(partition);
            System.out.println(truncated.offsetOutOfRangePartitions().get(partition) + " " + diverging.offset() + " "
                + diverging.leaderEpoch().orElse(-1));
        }
    }
}
