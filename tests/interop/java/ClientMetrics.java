import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records in transactions, reads and commits them, and prints the metrics of both Java clients, one per line:
 * group.name, the names of its tags without client-id, and its value.
 * Arguments: BOOTSTRAP TOPIC classic|consumer RECORDS
 */
public class ClientMetrics {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        var toBytes = new ByteArraySerializer();
        Map<String, Object> written = Map.of("bootstrap.servers", args[0], "transactional.id", args[1]);
        try (var producer = new KafkaProducer<byte[], byte[]>(written, toBytes, toBytes)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(args[1], new byte[100])).get();
            }
            producer.commitTransaction();
            print(producer.metrics());
        }
        var bytes = new ByteArrayDeserializer();
        Map<String, Object> read = Map.of(
            "bootstrap.servers", args[0], "group.id", args[1], "group.protocol", args[2], "auto.offset.reset", "earliest",
            "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(read, bytes, bytes)) {
            consumer.subscribe(List.of(args[1]));
            for (int seen = 0; seen < count; ) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
            Thread.sleep(200); // the last heartbeat
            print(consumer.metrics());
        }
    }

    private static void print(Map<MetricName, ? extends Metric> metrics) {
        for (var entry : metrics.entrySet()) {
            MetricName name = entry.getKey();
            String tags = new TreeSet<>(name.tags().keySet())
                .stream().filter(tag -> !tag.equals("client-id")).collect(Collectors.joining(","));
            System.out.println(
                name.group() + "." + name.name() + "\t" + tags + "\t" + entry.getValue().metricValue());
        }
    }
}
