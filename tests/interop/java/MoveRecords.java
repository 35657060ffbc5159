import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Moves records of SOURCE to TARGET for ever, in transactions with their offsets; some are aborted with a record "aborted" in them.
 * Each commit is a line "committed PID" on standard error. Ends with 3 when it is fenced, with 4 after any other failure; the supervisor starts the next one.
 * java -cp "libs/*" MoveRecords.java BOOTSTRAP SOURCE TARGET TRANSACTIONAL_ID GROUP SEED
 */
public class MoveRecords {
    public static void main(String[] args) {
        Random chance = new Random(Long.parseLong(args[5]));
        try {
            move(args[0], args[1], args[2], args[3], args[4], chance);
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.err.println("fenced: " + fenced);
            Runtime.getRuntime().halt(3);
        } catch (Exception failure) {
            System.err.println("failed: " + failure);
            Runtime.getRuntime().halt(4);
        }
    }

    private static void move(String bootstrap, String source, String target, String id, String group, Random chance) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", "10000");
        settings.put("reconnect.backoff.max.ms", "200");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        System.err.println("began " + ProcessHandle.current().pid());
        settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("max.poll.records", "50");
        settings.put("reconnect.backoff.max.ms", "200");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(source));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            try {
                if (chance.nextInt(8) == 0) {
                    producer.send(new ProducerRecord<>(target, chance.nextInt(2), null, "aborted"));
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.flush();
                    producer.abortTransaction();
                    rewind(consumer, records);
                } else {
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    producer.commitTransaction();
                    System.err.println("committed " + ProcessHandle.current().pid());
                }
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                throw fenced;
            } catch (KafkaException failure) {
                System.err.println("aborts after " + failure);
                producer.abortTransaction();
                rewind(consumer, records);
            }
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        for (TopicPartition partition : records.partitions()) {
            if (consumer.assignment().contains(partition)) {
                consumer.seek(partition, records.records(partition).get(0).offset());
            }
        }
    }
}
