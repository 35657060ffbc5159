import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills the topics of a running Kafka. Run: java -cp "libs/*" Workload.java BOOTSTRAP SEED
 * Prints the settings of the topics and what consumers get of them, as one JSON object.
 */
public class Workload {
    private static final long START_MS = 1_700_000_000_000L;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final String bootstrap;
    private final Random random;
    private long clock = START_MS;

    private Workload(String bootstrap, long seed) {
        this.bootstrap = bootstrap;
        this.random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        var workload = new Workload(args[0], Long.parseLong(args[1]));
        Map<String, Map<String, String>> topics = topics();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) args[0]))) {
            List<NewTopic> wanted = new ArrayList<>();
            topics.forEach((name, configs) ->
                wanted.add(new NewTopic(name, Optional.of(name.equals("g-keyed") ? 3 : 1), Optional.of((short) 1)).configs(configs)));
            admin.createTopics(wanted).all().get();
            workload.produce();
            admin.deleteRecords(Map.of(new TopicPartition("g-deleterecords", 0), RecordsToDelete.beforeOffset(60))).all().get();
        }
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("seed", args[1]);
        told.put("topics", topics);
        told.put("consumers", workload.consume(topics.keySet()));
        System.out.println(new ObjectMapper().writeValueAsString(told));
    }

    private static Map<String, Map<String, String>> topics() {
        Map<String, Map<String, String>> topics = new TreeMap<>();
        for (String codec : CODECS) {
            topics.put("g-" + codec, Map.of("segment.bytes", "1048576", "index.interval.bytes", "512"));
        }
        topics.put("g-segment-1mib", Map.of("segment.bytes", "1048576"));
        topics.put("g-recompress-zstd", Map.of("compression.type", "zstd"));
        topics.put("g-decompress", Map.of("compression.type", "uncompressed"));
        topics.put("g-logappend", Map.of("message.timestamp.type", "LogAppendTime"));
        topics.put("g-txn", Map.of("index.interval.bytes", "512"));
        topics.put("g-deleterecords", Map.of());
        topics.put("g-keyed", Map.of());
        topics.put("g-empty", Map.of());
        return topics;
    }

    private KafkaProducer<byte[], byte[]> producer(String codec, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "5");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings);
    }

    private byte[] bytes(int most) {
        byte[] data = new byte[random.nextInt(most)];
        if (random.nextBoolean()) {
            random.nextBytes(data);
        }
        return data;
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String topic, int count, int most) throws Exception {
        for (int sent = 0; sent < count; sent++) {
            byte[] value = random.nextInt(10) == 0 ? null : bytes(most);
            var record = new ProducerRecord<>(topic, null, clock += random.nextInt(1000), random.nextInt(5) == 0 ? null : bytes(20), value);
            if (random.nextInt(4) == 0) {
                record.headers().add("h-" + random.nextInt(3), bytes(10));
            }
            producer.send(record);
            if (random.nextInt(8) == 0) {
                producer.flush(); // so that batches have sizes that follow from the seed and not from the time
            }
        }
        producer.flush();
    }

    private void produce() throws Exception {
        for (String codec : CODECS) {
            try (var plain = producer(codec, null)) {
                send(plain, "g-" + codec, 120, 2000);
                send(plain, "g-" + codec, 3, 200_000);
            }
            try (var transactional = producer(codec, "tx-" + codec)) {
                transactional.initTransactions();
                for (int round = 0; round < 4; round++) {
                    transactional.beginTransaction();
                    send(transactional, "g-" + codec, 10, 500);
                    end(transactional, round % 2 == 0);
                }
            }
        }
        try (var plain = producer("none", null)) {
            send(plain, "g-segment-1mib", 60, 100_000);
            send(plain, "g-recompress-zstd", 50, 500);
            send(plain, "g-logappend", 50, 200);
            send(plain, "g-deleterecords", 100, 200);
            send(plain, "g-keyed", 90, 100);
        }
        try (var packed = producer("zstd", null)) {
            send(packed, "g-decompress", 50, 500);
        }
        try (var first = producer("lz4", "tx-first"); var second = producer("none", "tx-second")) {
            first.initTransactions();
            second.initTransactions();
            for (int round = 0; round < 12; round++) {
                first.beginTransaction();
                second.beginTransaction();
                send(first, "g-txn", 1 + random.nextInt(6), 200);
                send(second, "g-txn", 1 + random.nextInt(6), 200);
                end(first, random.nextBoolean());
                send(second, "g-txn", 1 + random.nextInt(6), 200);
                end(second, random.nextBoolean());
            }
        }
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** For each topic and isolation level the offsets that a consumer gets; the group's offsets are committed. */
    private Map<String, Object> consume(Iterable<String> topics) {
        Map<String, Object> told = new TreeMap<>();
        for (String topic : topics) {
            Map<String, Object> row = new LinkedHashMap<>();
            for (String level : List.of("read_uncommitted", "read_committed")) {
                Properties settings = new Properties();
                settings.put("bootstrap.servers", bootstrap);
                settings.put("key.deserializer", ByteArrayDeserializer.class);
                settings.put("value.deserializer", ByteArrayDeserializer.class);
                settings.put("isolation.level", level);
                settings.put("auto.offset.reset", "earliest");
                settings.put("group.id", "golden");
                settings.put("enable.auto.commit", "false");
                try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
                    row.put(level, offsets(consumer, topic));
                }
            }
            told.put(topic, row);
        }
        return told;
    }

    private static Map<Integer, Object> offsets(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream().map(one -> new TopicPartition(topic, one.partition())).toList();
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<Integer, Object> told = new TreeMap<>();
        var ends = consumer.endOffsets(partitions);
        Map<Integer, List<Long>> read = new TreeMap<>();
        while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                read.computeIfAbsent(record.partition(), one -> new ArrayList<>()).add(record.offset());
            }
        }
        Map<TopicPartition, OffsetAndMetadata> positions = new LinkedHashMap<>();
        partitions.forEach(one -> positions.put(one, new OffsetAndMetadata(consumer.position(one), "golden")));
        consumer.commitSync(positions);
        var starts = consumer.beginningOffsets(partitions);
        for (TopicPartition partition : partitions) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("earliest", starts.get(partition));
            row.put("end", ends.get(partition));
            row.put("offsets", read.getOrDefault(partition.partition(), List.of()));
            told.put(partition.partition(), row);
        }
        return told;
    }
}
