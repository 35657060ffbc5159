import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a transactional application does: commit, abort, lose its id to another instance, and move records of INPUT to OUTPUT in
 * transactions with their offsets, one of three aborted and done again. The last line is the number of moved records.
 * Compiles with kafka-clients 2.1 and later: java -cp "libs/*" Transactions.java BOOTSTRAP INPUT OUTPUT PARTITIONS
 */
public class Transactions {
    private static final AtomicInteger CLIENTS = new AtomicInteger();

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "producer-" + CLIENTS.incrementAndGet());
        settings.put("transactional.id", id);
        settings.put("linger.ms", "5");
        KafkaProducer<String, String> made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static void send(KafkaProducer<String, String> producer, String topic, int partitions, String what) {
        for (int number = 0; number < 30; number++) {
            producer.send(new ProducerRecord<>(topic, number % partitions, null, what + "-" + number));
        }
    }

    /** kafka-clients before 2.5 know the group's id alone, those from 4.0 on the metadata alone. */
    private static void sendOffsets(
            KafkaProducer<String, String> producer, Map<TopicPartition, OffsetAndMetadata> offsets, KafkaConsumer<?, ?> consumer, String group)
            throws Exception {
        try {
            Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            Class<?> type = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, type).invoke(producer, offsets, metadata);
        } catch (NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }

    private static void fence(String bootstrap, String id, String input, int partitions) {
        KafkaProducer<String, String> zombie = producer(bootstrap, id);
        zombie.beginTransaction();
        send(zombie, input, partitions, "zombie");
        zombie.flush();
        KafkaProducer<String, String> successor = producer(bootstrap, id);
        try {
            zombie.commitTransaction();
            throw new AssertionError("the zombie has committed");
        } catch (ProducerFencedException expected) {
            zombie.close();
        }
        successor.beginTransaction();
        send(successor, input, partitions, "successor");
        successor.commitTransaction();
        successor.close();
    }

    private static int move(String bootstrap, String id, String input, String output, int expected) throws Exception {
        String group = "group-" + id;
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "10");
        int moved = 0;
        int round = 0;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
                KafkaProducer<String, String> producer = producer(bootstrap, id + "-moves")) {
            consumer.subscribe(Collections.singletonList(input));
            long end = System.nanoTime() + 60_000_000_000L;
            while (moved < expected && System.nanoTime() < end) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
                    offsets.put(new TopicPartition(input, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                sendOffsets(producer, offsets, consumer, group);
                if (round++ % 3 == 1) {
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        consumer.seek(partition, records.records(partition).get(0).offset());
                    }
                } else {
                    producer.commitTransaction();
                    moved += records.count();
                }
            }
        }
        return moved;
    }

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        int partitions = Integer.parseInt(args[3]);
        String id = "java-" + UUID.randomUUID();
        try (KafkaProducer<String, String> producer = producer(bootstrap, id)) {
            List<String> kept = new ArrayList<>();
            for (String what : new String[] {"first", "aborted", "second"}) {
                producer.beginTransaction();
                send(producer, args[1], partitions, what);
                if (what.equals("aborted")) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    kept.add(what);
                }
            }
        }
        fence(bootstrap, id, args[1], partitions);
        System.out.println(move(bootstrap, id, args[1], args[2], 90));
    }
}
