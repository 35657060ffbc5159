import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What applications do with share groups. Each line of output is a step and what the consumer saw.
 * java -cp "libs/*" ShareGroups.java BOOTSTRAP TOPIC GROUP LOCK_MS; the group reads from the earliest offset and delivers twice.
 */
public class ShareGroups {
    private static String bootstrap;
    private static String topic;
    private static String group;

    private static KafkaShareConsumer<String, String> consumer(String mode) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", mode);
        KafkaShareConsumer<String, String> made = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    private static void send(String prefix, int count) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, prefix + number));
            }
        }
    }

    private static List<ConsumerRecord<String, String>> poll(KafkaShareConsumer<String, String> consumer, int count, long millis) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + millis;
        while (found.size() < count && System.currentTimeMillis() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            if (!found.isEmpty()) {
                break;
            }
        }
        return found;
    }

    private static void say(String step, List<ConsumerRecord<String, String>> records) {
        TreeMap<String, Integer> seen = new TreeMap<>();
        records.forEach(record -> seen.put(record.value(), (int) record.deliveryCount().orElse((short) -1)));
        System.out.println(step + " " + seen);
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        consumer.commitSync(Duration.ofSeconds(30)).forEach((partition, error) ->
            error.ifPresent(failure -> System.out.println("failed " + failure)));
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        group = args[2];
        long lockMs = Long.parseLong(args[3]);

        send("a", 4);
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            say("implicit", poll(consumer, 4, 60_000));
            commit(consumer);
            say("implicit-rest", poll(consumer, 1, 1_000));
        }

        send("b", 4);
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit")) {
            List<ConsumerRecord<String, String>> records = poll(consumer, 4, 60_000);
            say("explicit", records);
            consumer.acknowledge(records.get(0), AcknowledgeType.ACCEPT);
            consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
            consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
            consumer.acknowledge(records.get(3), AcknowledgeType.RELEASE);
            commit(consumer);
            records = poll(consumer, 2, 30_000);
            if (records.size() < 2) {
                // A throttled delivery comes in smaller pieces.
                say("explicit-piece", records);
            } else {
                say("explicit-released", records);
            }
            for (ConsumerRecord<String, String> record : records) {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            commit(consumer);
        }

        send("c", 2);
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit")) {
            List<ConsumerRecord<String, String>> records = poll(consumer, 2, 60_000);
            say("renewed", records);
            long end = System.currentTimeMillis() + 2 * lockMs;
            while (System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : records) {
                    consumer.acknowledge(record, AcknowledgeType.RENEW);
                }
                commit(consumer);
                consumer.poll(Duration.ofMillis(100));
                Thread.sleep(lockMs / 4);
            }
            for (ConsumerRecord<String, String> record : records) {
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            }
            commit(consumer);
        }

        send("d", 1);
        try (KafkaShareConsumer<String, String> slow = consumer("explicit"); KafkaShareConsumer<String, String> other = consumer("explicit")) {
            say("locked", poll(slow, 1, 60_000));
            List<ConsumerRecord<String, String>> records = poll(other, 1, 60_000);
            say("timed-out", records);
            for (ConsumerRecord<String, String> record : records) {
                other.acknowledge(record, AcknowledgeType.RELEASE);
            }
            commit(other);
            say("exhausted", poll(other, 1, 2 * lockMs));
        }
        System.out.println("done");
    }
}
