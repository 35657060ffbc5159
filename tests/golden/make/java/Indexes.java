import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.generated.QuorumStateData;
import org.apache.kafka.raft.generated.QuorumStateDataJsonConverter;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * What Kafka's classes read in the files beside a log. Each line of standard input is a question, each line of standard
 * output its answer as JSON. Run: java -cp "libs/*" Indexes.java VERB
 *   segment       {"file": .log, "indexIntervalBytes", "reads", "timestampSearches"}: entries of the index files, and what
 *                 LogSegment answers; without "reads" only the offset index and the time index
 *   partition     a folder: its producer snapshots and leader epochs
 *   quorum-state  a file quorum-state
 */
public class Indexes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static final int INDEX_BYTES = 1 << 20;

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            Object row = switch (args[0]) {
                case "segment" -> segment(JSON.readTree(line));
                case "partition" -> partition(Path.of(line));
                case "quorum-state" -> quorumState(Path.of(line));
                default -> throw new IllegalArgumentException(args[0]);
            };
            System.out.println(JSON.writeValueAsString(row));
        }
        SCHEDULER.shutdown();
    }

    private static Map<String, Object> row(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int index = 0; index < pairs.length; index += 2) {
            row.put((String) pairs[index], pairs[index + 1]);
        }
        return row;
    }

    private static Map<String, Object> segment(JsonNode question) throws Exception {
        Path log = Path.of(question.get("file").asText());
        String stem = log.getFileName().toString().replace(".log", "");
        long base = Long.parseLong(stem);
        Path home = Files.createTempDirectory("segment");
        Map<String, Object> row = new LinkedHashMap<>();
        try {
            // Kafka's classes cut index files when they open and close them: they get copies.
            Path folder = Files.createDirectory(home.resolve("copy-0"));
            for (String suffix : List.of(".log", ".index", ".timeindex", ".txnindex")) {
                Path file = log.resolveSibling(stem + suffix);
                if (Files.exists(file)) {
                    Files.copy(file, folder.resolve(stem + suffix));
                }
            }
            entries(folder, stem, base, row);
            if (question.has("reads")) {
                int interval = question.get("indexIntervalBytes").asInt();
                if (Files.size(log) > 0) {
                    ask(folder.toFile(), base, interval, question, row);
                }
                row.put("recovered", recovered(log, home, base, interval));
            }
        } finally {
            try (Stream<Path> paths = Files.walk(home)) {
                for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(path);
                }
            }
        }
        return row;
    }

    private static void entries(Path folder, String stem, long base, Map<String, Object> row) throws IOException {
        Path file = folder.resolve(stem + ".index");
        row.put("offsetIndexBytes", (int) Files.size(file));
        List<Object> offsets = List.of();
        if (Files.size(file) > 0) {
            OffsetIndex index = new OffsetIndex(file.toFile(), base, INDEX_BYTES, false);
            offsets = offsets(index, base);
            index.closeHandler();
        }
        row.put("offsetIndex", offsets);
        if (!offsets.isEmpty()) {
            row.put("offsetIndexEntries", offsets.size());
        }
        file = folder.resolve(stem + ".timeindex");
        row.put("timeIndexBytes", (int) Files.size(file));
        List<Object> times = List.of();
        if (Files.size(file) > 0) {
            TimeIndex index = new TimeIndex(file.toFile(), base, INDEX_BYTES, false);
            times = times(index, base);
            index.closeHandler();
        }
        row.put("timeIndex", times);
        file = folder.resolve(stem + ".txnindex");
        if (Files.exists(file)) {
            List<Object> aborted = new ArrayList<>();
            try (TransactionIndex index = new TransactionIndex(base, file.toFile())) {
                index.allAbortedTxns().forEach(txn -> aborted.add(row("version", (int) txn.version(), "producerId", txn.producerId(),
                    "firstOffset", txn.firstOffset(), "lastOffset", txn.lastOffset(), "lastStableOffset", txn.lastStableOffset())));
            }
            row.put("txnIndex", aborted);
        }
    }

    /** The entries before the zeros of a preallocated file. */
    private static List<Object> offsets(OffsetIndex index, long base) {
        List<Object> entries = new ArrayList<>();
        for (int slot = 0; slot < index.entries(); slot++) {
            var entry = index.entry(slot);
            if (entry.offset() == base && entry.position() == 0) {
                break;
            }
            entries.add(List.of(entry.offset(), entry.position()));
        }
        return entries;
    }

    private static List<Object> times(TimeIndex index, long base) {
        List<Object> entries = new ArrayList<>();
        for (int slot = 0; slot < index.entries(); slot++) {
            var entry = index.entry(slot);
            if (entry.offset() == base && entry.timestamp() == 0) {
                break;
            }
            entries.add(List.of(entry.timestamp(), entry.offset()));
        }
        return entries;
    }

    private static LogSegment open(File folder, long base, int interval) throws IOException {
        Properties settings = new Properties();
        settings.put("index.interval.bytes", String.valueOf(interval));
        return LogSegment.open(folder, base, new LogConfig(settings), Time.SYSTEM, true, 0, false, "");
    }

    private static void ask(File folder, long base, int interval, JsonNode question, Map<String, Object> row) throws IOException {
        LogSegment segment = open(folder, base, interval);
        try {
            List<Object> reads = new ArrayList<>();
            for (JsonNode read : question.get("reads")) {
                long offset = read.get("offset").asLong();
                var place = segment.translateOffset(offset);
                var found = segment.read(offset, read.get("maxBytes").asInt(), Optional.of((long) segment.size()), read.get("minOneMessage").asBoolean());
                Map<String, Object> answer = row("offset", offset, "maxBytes", read.get("maxBytes").asInt(), "minOneMessage",
                    read.get("minOneMessage").asBoolean(), "translated", null, "read", null);
                if (place != null) {
                    answer.put("translated", List.of(place.offset, place.position, place.size));
                }
                if (found != null) {
                    answer.put("read", row("segmentBaseOffset", found.fetchOffsetMetadata.segmentBaseOffset, "position",
                        found.fetchOffsetMetadata.relativePositionInSegment, "size", found.records.sizeInBytes(),
                        "firstEntryIncomplete", found.firstEntryIncomplete));
                }
                reads.add(answer);
            }
            row.put("reads", reads);
            List<Object> searches = new ArrayList<>();
            for (JsonNode search : question.get("timestampSearches")) {
                var found = segment.findOffsetByTimestamp(search.get("timestamp").asLong(), search.get("startOffset").asLong());
                searches.add(row("timestamp", search.get("timestamp").asLong(), "startOffset", search.get("startOffset").asLong(), "found",
                    found.map(one -> row("timestamp", one.timestamp, "offset", one.offset, "leaderEpoch", one.leaderEpoch.orElse(null))).orElse(null)));
            }
            row.put("timestampSearches", searches);
        } finally {
            segment.close();
        }
    }

    /** What LogSegment.recover rebuilds in a folder that has the log and the producer snapshots, as LogLoader does. */
    private static Map<String, Object> recovered(Path log, Path home, long base, int interval) throws Exception {
        File folder = Files.createDirectory(home.resolve("recovered-0")).toFile();
        Files.copy(log, folder.toPath().resolve(log.getFileName()));
        for (var snapshot : ProducerStateManager.listSnapshotFiles(log.getParent().toFile())) {
            Files.copy(snapshot.file().toPath(), folder.toPath().resolve(snapshot.file().getName()));
        }
        var partition = new TopicPartition("recovered", 0);
        var epochs = new LeaderEpochFileCache(partition,
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(folder), new LogDirFailureChannel(1)), SCHEDULER);
        var producers = new ProducerStateManager(partition, folder, 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        producers.truncateAndReload(0, base, 0); // at the time 0 no producer is expired
        LogSegment segment = open(folder, base, interval);
        Map<String, Object> row = new LinkedHashMap<>();
        try {
            row.put("truncatedBytes", segment.recover(producers, epochs));
            row.put("logBytes", segment.size());
            row.put("offsetIndex", offsets(segment.offsetIndex(), base));
            row.put("timeIndex", times(segment.timeIndex(), base));
            List<Object> aborted = new ArrayList<>();
            segment.txnIndex().allAbortedTxns().forEach(txn ->
                aborted.add(List.of(txn.producerId(), txn.firstOffset(), txn.lastOffset(), txn.lastStableOffset())));
            row.put("txnIndex", aborted);
            row.put("leaderEpochs", epochs.epochEntries().stream().map(one -> List.of((long) one.epoch(), one.startOffset())).toList());
        } finally {
            segment.close();
        }
        String stem = log.getFileName().toString().replace(".log", "");
        row.put("offsetIndexSha256", sha256(Files.readAllBytes(folder.toPath().resolve(stem + ".index"))));
        row.put("timeIndexSha256", sha256(Files.readAllBytes(folder.toPath().resolve(stem + ".timeindex"))));
        return row;
    }

    private static String sha256(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    }

    private static Map<String, Object> partition(Path folder) throws Exception {
        List<Object> snapshots = new ArrayList<>();
        for (var snapshot : ProducerStateManager.listSnapshotFiles(folder.toFile()).stream().sorted(Comparator.comparingLong(one -> one.offset)).toList()) {
            List<Object> entries = new ArrayList<>();
            for (var entry : ProducerStateManager.readSnapshot(snapshot.file())) {
                entries.add(row("producerId", entry.producerId(), "producerEpoch", (int) entry.producerEpoch(), "coordinatorEpoch", entry.coordinatorEpoch(),
                    "lastTimestamp", entry.lastTimestamp(), "currentTxnFirstOffset", entry.currentTxnFirstOffset().orElse(-1),
                    "batches", entry.batchMetadata().stream().map(batch -> row("firstSeq", batch.firstSeq(), "lastSeq", batch.lastSeq(),
                        "firstOffset", batch.firstOffset(), "lastOffset", batch.lastOffset(), "timestamp", batch.timestamp())).toList()));
            }
            snapshots.add(row("file", snapshot.file().getName(), "entries", entries));
        }
        var file = folder.resolve("leader-epoch-checkpoint");
        List<Object> epochs = new ArrayList<>();
        if (Files.exists(file)) {
            new LeaderEpochCheckpointFile(file.toFile(), new LogDirFailureChannel(1)).read().forEach(one ->
                epochs.add(List.of((long) one.epoch(), one.startOffset())));
        }
        return row("producerSnapshots", snapshots, "leaderEpochs", epochs);
    }

    private static Map<String, Object> quorumState(Path file) throws Exception {
        byte[] data = Files.readAllBytes(file);
        ObjectNode json = (ObjectNode) JSON.readTree(data);
        short version = (short) json.remove("data_version").asInt();
        QuorumStateData state = QuorumStateDataJsonConverter.read(json, version);
        return row("dataVersion", (int) version, "data", QuorumStateDataJsonConverter.write(state, version), "sha256", sha256(data));
    }
}
