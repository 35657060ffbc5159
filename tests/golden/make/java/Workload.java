import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills the topics of a running Kafka. Run: java -cp "libs/*" Workload.java BOOTSTRAP SEED
 * Each line of standard input is a command as JSON with its "verb", each line of standard output its answer. Producers
 * stay open between commands; the process ends at the end of its input, without closing them, so that transactions that
 * are open stay so. What is sent follows from the seed, the topic and the step.
 *   create   {"topics": {name: {"assignments": [[node]], "configs"}}}: makes topics; answers their ids
 *   send     {"topic", "step", "codec", "count", "most", ...}: records by one producer, see Sending
 *   end      {"id", "commit"}: ends the transaction of a producer
 *   delete   {"topic", "offset"}: DeleteRecords
 *   elect    {"topic", "replicas"}: gives partition 0 this order of replicas, and has the first one elected
 *   group    {"group", "protocol", "member", "topics", "rounds", "leave"}: joins a group and commits offsets
 *   consume  {"topic"}: what consumers get of partition 0; with "ends" only its first and next offset
 *   leader   {"topic"}: leader, leader epoch and replicas in sync of partition 0
 */
public class Workload {
    private static final long START_MS = 1_702_389_440_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final long seed;
    private final Admin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, Long> clocks = new HashMap<>();
    private final Set<String> open = new java.util.HashSet<>();

    private Workload(String bootstrap, long seed) {
        this.bootstrap = bootstrap;
        this.seed = seed;
        this.admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap));
    }

    public static void main(String[] args) throws Exception {
        var workload = new Workload(args[0], Long.parseLong(args[1]));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(workload.obey(JSON.readTree(line))));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object obey(JsonNode command) throws Exception {
        return switch (command.get("verb").asText()) {
            case "create" -> create(command.get("topics"));
            case "send" -> send(command);
            case "end" -> end(command.get("id").asText(), command.get("commit").asBoolean());
            case "delete" -> delete(command);
            case "elect" -> elect(command);
            case "group" -> group(command);
            case "consume" -> consume(command);
            case "leader" -> leader(command);
            default -> throw new IllegalArgumentException(command.toString());
        };
    }

    private static TopicPartition partition(JsonNode command) {
        return new TopicPartition(command.get("topic").asText(), 0);
    }

    private static List<Integer> integers(JsonNode array) {
        List<Integer> found = new ArrayList<>();
        array.forEach(one -> found.add(one.asInt()));
        return found;
    }

    private Map<String, Object> create(JsonNode topics) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (var topic : topics.properties()) {
            Map<Integer, List<Integer>> assignments = new HashMap<>();
            topic.getValue().get("assignments").forEach(one -> assignments.put(assignments.size(), integers(one)));
            Map<String, String> configs = new HashMap<>();
            topic.getValue().get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
            wanted.add(new NewTopic(topic.getKey(), assignments).configs(configs));
        }
        var made = admin.createTopics(wanted);
        made.all().get();
        Map<String, Object> ids = new TreeMap<>();
        for (NewTopic topic : wanted) {
            ids.put(topic.name(), made.topicId(topic.name()).get().toString());
        }
        return ids;
    }

    /** A producer by its id: those whose id begins with tx- are transactional, those with plain- not idempotent. */
    private KafkaProducer<byte[], byte[]> producer(String id, String codec) {
        return producers.computeIfAbsent(id + " " + codec, key -> {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("key.serializer", ByteArraySerializer.class);
            settings.put("value.serializer", ByteArraySerializer.class);
            settings.put("compression.type", codec);
            settings.put("linger.ms", "20");
            settings.put("batch.size", "32768");
            settings.put("max.request.size", "2000000");
            settings.put("enable.idempotence", String.valueOf(!id.startsWith("plain-")));
            if (id.startsWith("tx-")) {
                settings.put("transactional.id", id);
                settings.put("transaction.timeout.ms", "900000");
            }
            var made = new KafkaProducer<byte[], byte[]>(settings);
            if (id.startsWith("tx-")) {
                made.initTransactions();
            }
            return made;
        });
    }

    private Map<String, Object> send(JsonNode command) throws Exception {
        String id = command.get("id").asText();
        String topic = command.get("topic").asText();
        var producer = producer(id, command.get("codec").asText());
        if (id.startsWith("tx-") && open.add(id)) {
            producer.beginTransaction();
        }
        Random random = new Random((seed + " " + topic + " " + command.get("step").asText()).hashCode());
        int keys = command.path("keys").asInt();
        long clock = clocks.getOrDefault(topic, START_MS);
        int count = command.get("count").asInt();
        for (int sent = 0; sent < count; sent++) {
            clock += random.nextInt(command.path("milliseconds").asInt(600));
            byte[] key = keys > 0 ? ("key-" + random.nextInt(keys)).getBytes(StandardCharsets.UTF_8) : random.nextInt(5) == 0 ? null : bytes(random, 20);
            byte[] value = random.nextInt(20) == 0 ? null : bytes(random, random.nextInt(10) == 0 ? command.get("most").asInt() : command.path("usual").asInt(400));
            var record = new ProducerRecord<>(topic, null, clock, key, value);
            for (int header = random.nextInt(5); header > 2; header--) {
                record.headers().add("h-" + random.nextInt(3), random.nextInt(5) == 0 ? null : bytes(random, 10));
            }
            producer.send(record);
            if (random.nextInt(command.path("flush").asInt(12)) == 0) {
                producer.flush(); // so that the sizes of batches follow from the seed more than from the time
            }
        }
        producer.flush();
        clocks.put(topic, clock);
        if (!id.startsWith("tx-")) {
            producers.remove(id + " " + command.get("codec").asText()).close();
        }
        return Map.of();
    }

    /** Bytes that do not compress, a few words, or one byte repeated. */
    private static byte[] bytes(Random random, int most) {
        byte[] data = new byte[random.nextInt(most)];
        switch (random.nextInt(3)) {
            case 0 -> random.nextBytes(data);
            case 1 -> {
                byte[] words = ("order-" + random.nextInt(100) + " über ").getBytes(StandardCharsets.UTF_8);
                for (int index = 0; index < data.length; index++) {
                    data[index] = words[index % words.length];
                }
            }
            default -> java.util.Arrays.fill(data, (byte) random.nextInt(256));
        }
        return data;
    }

    private Map<String, Object> end(String id, boolean commit) {
        for (var entry : producers.entrySet()) {
            if (entry.getKey().startsWith(id + " ")) {
                if (commit) {
                    entry.getValue().commitTransaction();
                } else {
                    entry.getValue().abortTransaction();
                }
                open.remove(id);
                return Map.of();
            }
        }
        throw new IllegalArgumentException(id);
    }

    private Map<String, Object> delete(JsonNode command) throws Exception {
        admin.deleteRecords(Map.of(partition(command), RecordsToDelete.beforeOffset(command.get("offset").asLong()))).all().get();
        return Map.of();
    }

    private Map<String, Object> elect(JsonNode command) throws Exception {
        var partition = partition(command);
        admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(integers(command.get("replicas")))))).all().get();
        // ELECTION_NOT_NEEDED of a partition is an answer as good as an election.
        admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        return leader(command);
    }

    private Map<String, Object> leader(JsonNode command) throws Exception {
        var partition = partition(command);
        var info = admin.describeTopics(List.of(partition.topic())).allTopicNames().get().get(partition.topic()).partitions().get(0);
        int epoch = info.leader() == null || info.leader().isEmpty() ? -1
            : admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().get(partition).leaderEpoch().orElse(-1);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("leader", info.leader() == null ? -1 : info.leader().id());
        row.put("leaderEpoch", epoch);
        row.put("inSync", info.isr().stream().map(one -> one.id()).sorted().toList());
        return row;
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, String> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "50");
        settings.putAll(more);
        return new KafkaConsumer<>(settings);
    }

    private Map<String, Object> group(JsonNode command) {
        Map<String, String> settings = new HashMap<>(Map.of("group.id", command.get("group").asText(), "group.protocol", command.get("protocol").asText(),
            "max.poll.records", "40"));
        if (command.has("member")) {
            settings.put("group.instance.id", command.get("member").asText());
        }
        List<String> topics = new ArrayList<>();
        command.get("topics").forEach(one -> topics.add(one.asText()));
        int rounds = command.get("rounds").asInt();
        var consumer = consumer(settings);
        consumer.subscribe(topics);
        long deadline = System.currentTimeMillis() + 60_000;
        while (rounds > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("no records for " + settings);
            }
            if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                consumer.commitSync();
                rounds--;
            }
        }
        if (command.path("leave").asBoolean(true)) {
            consumer.close();
        }
        return Map.of();
    }

    private Map<String, Object> consume(JsonNode command) throws Exception {
        var partition = partition(command);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("earliest", admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all().get().get(partition).offset());
        row.put("latest", admin.listOffsets(Map.of(partition, OffsetSpec.latest())).all().get().get(partition).offset());
        if (command.has("ends")) {
            return row;
        }
        for (IsolationLevel level : IsolationLevel.values()) {
            try (var consumer = consumer(Map.of("isolation.level", level.toString().toLowerCase()))) {
                row.put(level.toString().toLowerCase(), ranges(consumer, partition));
                if (level == IsolationLevel.READ_COMMITTED) {
                    row.put("lastStableOffset", consumer.endOffsets(List.of(partition)).get(partition));
                }
            }
        }
        return row;
    }

    /** First and last of each run of offsets. */
    private static List<List<Long>> ranges(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        List<List<Long>> ranges = new ArrayList<>();
        long first = -1;
        long last = -2;
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                if (record.offset() != last + 1) {
                    if (first >= 0) {
                        ranges.add(List.of(first, last));
                    }
                    first = record.offset();
                }
                last = record.offset();
            }
        }
        if (first >= 0) {
            ranges.add(List.of(first, last));
        }
        return ranges;
    }
}
