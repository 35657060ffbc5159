import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the milliseconds from the making of a Java consumer to its first record, in a group of its own.
 * Run as a source file: java -cp "libs/*" NewGroup.java BOOTSTRAP TOPIC GROUP classic|consumer TIMEOUT_SECONDS
 */
public class NewGroup {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "group.id", args[2], "group.protocol", args[3], "auto.offset.reset", "earliest");
        var bytes = new ByteArrayDeserializer();
        long began = System.nanoTime();
        long deadline = began + Duration.ofSeconds(Long.parseLong(args[4])).toNanos();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("no record came");
                }
            }
            System.out.println((System.nanoTime() - began) / 1e6);
        }
    }
}
