import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads partition 0 of each topic with the Java consumer and prints "topic count sha256", the digest being over
 * key, value and headers of the records in order, each field behind its int32 length (-1: null).
 * Run as a source file: java -cp "libs/*" RoundTrip.java BOOTSTRAP TOPIC...
 */
public class RoundTrip {
    private static void field(MessageDigest digest, byte[] data) {
        digest.update(ByteBuffer.allocate(4).putInt(data == null ? -1 : data.length).array());
        if (data != null) {
            digest.update(data);
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "enable.auto.commit", "false", "fetch.max.wait.ms", "100");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            for (String topic : List.of(args).subList(1, args.length)) {
                var partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                var digest = MessageDigest.getInstance("SHA-256");
                long count = 0;
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        field(digest, record.key());
                        field(digest, record.value());
                        Header[] headers = record.headers().toArray();
                        digest.update(ByteBuffer.allocate(4).putInt(headers.length).array());
                        for (Header header : headers) {
                            field(digest, header.key().getBytes(StandardCharsets.UTF_8));
                            field(digest, header.value());
                        }
                        count++;
                    }
                }
                System.out.println(topic + " " + count + " " + HexFormat.of().formatHex(digest.digest()));
            }
        }
    }
}
