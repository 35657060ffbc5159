import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * What Kafka's classes read in log files: the rows of the golden files. Each line of standard input is a file, or a JSON
 * object for `bytes`; each line of standard output is the JSON of its row. Run: java -cp "libs/*" Rows.java VERB
 *   batches    every batch of a .log or .checkpoint file, with its records
 *   bytes      the same of {"hex": batches}
 *   damaged    scan by FileRecords, by MemoryRecords, and LogSegment.recover in a folder of its own
 */
public class Rows {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1); // it deletes files later; none here waits for it

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            Object row = switch (args[0]) {
                case "batches" -> row("file", line, "batches", batches(Files.readAllBytes(Path.of(line)), Path.of(line)));
                case "bytes" -> decoded(JSON.readTree(line).get("hex").asText());
                case "damaged" -> damaged(new File(line));
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

    private static Map<String, Object> decoded(String hex) {
        byte[] data = HexFormat.of().parseHex(hex);
        Map<String, Object> row = new LinkedHashMap<>();
        List<Object> found = new ArrayList<>();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            Map<String, Object> header = header(batch, ByteBuffer.wrap(data), sum(found));
            found.add(header);
            try {
                List<Object> records = records(batch, "");
                if (!records.isEmpty()) {
                    header.put("records", records);
                }
            } catch (RuntimeException unreadable) {
                row.put("kafkaReadError", unreadable.getClass().getName());
            }
        }
        row.put("decoded", found);
        return row;
    }

    private static int sum(List<Object> batches) {
        return batches.stream().mapToInt(batch -> (int) ((Map<?, ?>) batch).get("size")).sum();
    }

    private static List<Object> batches(byte[] data, Path file) {
        List<Object> found = new ArrayList<>();
        int position = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            Map<String, Object> row = row("position", position);
            row.putAll(header(batch, ByteBuffer.wrap(data), position));
            boolean isSnapshot = file.getFileName().toString().endsWith(".checkpoint");
            row.put("records", records(batch, isSnapshot ? "__cluster_metadata" : file.getParent().getFileName().toString()));
            found.add(row);
            position += batch.sizeInBytes();
        }
        return found;
    }

    private static Map<String, Object> header(RecordBatch batch, ByteBuffer data, int position) {
        Map<String, Object> row = row("size", batch.sizeInBytes(), "baseOffset", batch.baseOffset(), "lastOffset", batch.lastOffset(),
            "magic", (int) batch.magic(), "crc", batch.checksum(), "valid", batch.isValid(), "compression", batch.compressionType().name,
            "timestampType", batch.timestampType().name, "maxTimestamp", batch.maxTimestamp());
        if (batch.magic() >= 2) {
            row.putAll(row("batchLength", batch.sizeInBytes() - 12, "partitionLeaderEpoch", batch.partitionLeaderEpoch(),
                "attributes", (int) data.getShort(position + 21), "isTransactional", batch.isTransactional(),
                "isControl", batch.isControlBatch(), "lastOffsetDelta", data.getInt(position + 23),
                "baseTimestamp", data.getLong(position + 27),
                "deleteHorizonMs", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null,
                "producerId", batch.producerId(), "producerEpoch", (int) batch.producerEpoch(), "baseSequence", batch.baseSequence(),
                "lastSequence", batch.lastSequence(), "count", batch.countOrNull()));
        }
        return row;
    }

    private static List<Object> records(RecordBatch batch, String folder) {
        List<Object> rows = new ArrayList<>();
        for (Record record : batch) {
            Map<String, Object> row = row("offset", record.offset(), "timestamp", record.timestamp());
            if (batch.magic() >= 2) {
                row.put("sequence", record.sequence());
                row.put("size", record.sizeInBytes());
            }
            row.put("key", bytes(record.key()));
            row.put("value", bytes(record.value()));
            if (batch.magic() >= 2) {
                List<Object> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    headers.add(Arrays.asList(header.key(), bytes(header.value() == null ? null : ByteBuffer.wrap(header.value()))));
                }
                row.put("headers", headers);
            }
            if (batch.isControlBatch()) {
                row.put("control", control(record));
            } else if (folder.startsWith("__cluster_metadata")) {
                row.put("metadataRecord", metadata(record));
            } else if (folder.startsWith("__consumer_offsets") || folder.startsWith("__transaction_state")) {
                row.put("coordinatorRecord", coordinator(record, folder.startsWith("__c") ? "group" : "transaction"));
            }
            rows.add(row);
        }
        return rows;
    }

    private static byte[] array(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    private static Object bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] data = array(buffer);
        if (data.length < 64) {
            return row("len", data.length, "b64", Base64.getEncoder().encodeToString(data));
        }
        return row("len", data.length, "sha256", sha256(data));
    }

    private static String sha256(byte[] data) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static Map<String, Object> control(Record record) {
        ControlRecordType type = ControlRecordType.parse(record.key());
        Map<String, Object> row = row("keyVersion", (int) record.key().getShort(0), "type", (int) type.type(), "typeName", type.name());
        switch (type) {
            case ABORT, COMMIT -> {
                row.put("valueVersion", (int) record.value().getShort(0));
                row.put("coordinatorEpoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
            }
            case LEADER_CHANGE -> {
                var value = ControlRecordUtils.deserializeLeaderChangeMessage(record);
                row.put("value", LeaderChangeMessageJsonConverter.write(value, value.version()));
            }
            case SNAPSHOT_HEADER -> {
                var value = ControlRecordUtils.deserializeSnapshotHeaderRecord(record);
                row.put("value", SnapshotHeaderRecordJsonConverter.write(value, value.version()));
            }
            case SNAPSHOT_FOOTER -> {
                var value = ControlRecordUtils.deserializeSnapshotFooterRecord(record);
                row.put("value", SnapshotFooterRecordJsonConverter.write(value, value.version()));
            }
            case KRAFT_VERSION -> {
                var value = ControlRecordUtils.deserializeKRaftVersionRecord(record);
                row.put("value", KRaftVersionRecordJsonConverter.write(value, value.version()));
            }
            case KRAFT_VOTERS -> {
                var value = ControlRecordUtils.deserializeVotersRecord(record);
                row.put("value", VotersRecordJsonConverter.write(value, value.version()));
            }
            default -> throw new IllegalArgumentException("control record " + type);
        }
        return row;
    }

    private static Map<String, Object> metadata(Record record) {
        var found = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(record.value().duplicate()), record.valueSize());
        short key = found.message().apiKey();
        JsonNode data = MetadataJsonConverters.writeJson(found.message(), found.version());
        return row("apiKey", (int) key, "type", MetadataRecordType.fromId(key).name(), "version", (int) found.version(), "data", data);
    }

    /** The record types of a coordinator are generated classes of the same names in packages of their own. */
    private static Map<String, Object> coordinator(Record record, String name) {
        try {
            String room = "org.apache.kafka.coordinator." + name + ".generated.CoordinatorRecord";
            Class<?> types = Class.forName(room + "Type");
            Class<?> converters = Class.forName(room + "JsonConverters");
            ByteBuffer key = record.key().duplicate();
            short id = key.getShort();
            Object type = types.getMethod("fromId", short.class).invoke(null, id);
            ApiMessage keyMessage = (ApiMessage) types.getMethod("newRecordKey").invoke(type);
            keyMessage.read(new ByteBufferAccessor(key), (short) 0);
            String keyClass = keyMessage.getClass().getSimpleName();
            Map<String, Object> row = row("type", (int) id, "name", keyClass.substring(0, keyClass.length() - 3),
                "key", converters.getMethod("writeRecordKeyAsJson", ApiMessage.class).invoke(null, keyMessage));
            if (record.value() == null) {
                row.put("value", null);
            } else {
                ByteBuffer value = record.value().duplicate();
                short version = value.getShort();
                ApiMessage message = (ApiMessage) types.getMethod("newRecordValue").invoke(type);
                message.read(new ByteBufferAccessor(value), version);
                row.put("valueVersion", (int) version);
                row.put("value", converters.getMethod("writeRecordValueAsJson", ApiMessage.class, short.class).invoke(null, message, version));
            }
            return row;
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Map<String, Object> damaged(File file) throws Exception {
        long baseOffset = Long.parseLong(file.getName().substring(0, 20));
        return row("segmentBaseOffset", baseOffset, "fileBytes", (int) file.length(), "scan", scan(file), "memory", memory(file),
            "recover", recover(file, baseOffset));
    }

    private static String name(Throwable error) {
        return error.getClass().getName();
    }

    private static Map<String, Object> scan(File file) throws IOException {
        List<Object> batches = new ArrayList<>();
        Map<String, Object> row = row("batches", batches);
        int position = 0;
        try (FileRecords records = FileRecords.open(file, false)) {
            for (var batch : records.batches()) {
                Map<String, Object> found = row("position", batch.position(), "size", batch.sizeInBytes());
                batches.add(found);
                scanned(batch, found);
                position = batch.position() + batch.sizeInBytes();
            }
        } catch (RuntimeException error) {
            row.put("exception", name(error));
        }
        row.put("stoppedAt", position);
        return row;
    }

    /** Fills a row; what the header alone throws ends the scan, with position and size of the batch in the row. */
    private static void scanned(RecordBatch batch, Map<String, Object> row) {
        row.put("baseOffset", batch.baseOffset());
        row.put("magic", (int) batch.magic());
        try {
            batch.ensureValid();
            row.put("valid", true);
        } catch (RuntimeException error) {
            row.put("valid", false);
            row.put("validError", name(error));
        }
        try {
            row.put("lastOffset", batch.lastOffset());
        } catch (RuntimeException unreadable) {
            // A compressed set of formats v0 and v1 takes its last offset from inside.
        }
        List<Long> offsets = new ArrayList<>();
        try {
            for (Record record : batch) {
                offsets.add(record.offset());
            }
        } catch (RuntimeException | OutOfMemoryError error) { // Kafka allocates the count of the header
            row.put("recordsError", name(error));
        }
        row.put("recordsRead", offsets.size());
        row.put("recordOffsets", offsets);
    }

    private static Map<String, Object> memory(File file) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file.toPath())));
        Map<String, Object> row = new LinkedHashMap<>();
        int count = 0;
        int size = 0;
        try {
            for (MutableRecordBatch batch : records.batches()) {
                count++;
                size += batch.sizeInBytes();
            }
        } catch (RuntimeException error) {
            row.put("exception", name(error));
        }
        row.put("batches", count);
        row.put("bytes", size);
        return row;
    }

    private static Map<String, Object> recover(File file, long baseOffset) throws Exception {
        Path home = Files.createTempDirectory("recover");
        Path folder = Files.createDirectory(home.resolve("damaged-0"));
        Path copy = folder.resolve(file.getName());
        Files.copy(file.toPath(), copy);
        Map<String, Object> row = new LinkedHashMap<>();
        Properties settings = new Properties();
        settings.put("index.interval.bytes", "1024");
        var partition = new TopicPartition("damaged", 0);
        var epochs = new LeaderEpochFileCache(partition,
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(folder.toFile()), new LogDirFailureChannel(1)), SCHEDULER);
        var producers = new ProducerStateManager(partition, folder.toFile(), 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        LogSegment segment = LogSegment.open(folder.toFile(), baseOffset, new LogConfig(settings), Time.SYSTEM, true, 0, false, "");
        try {
            row.put("truncatedBytes", segment.recover(producers, epochs));
            row.put("bytesAfter", segment.size());
            row.put("nextOffset", segment.readNextOffset());
            row.put("offsetIndex", offsetIndex(segment.offsetIndex()));
            row.put("leaderEpochs", epochs.epochEntries().stream().map(one -> List.of((long) one.epoch(), one.startOffset())).toList());
            row.put("producers", producers.activeProducers().size());
        } catch (RuntimeException error) {
            row.clear();
            row.put("exception", name(error));
            row.put("bytesAfter", Files.size(copy));
        } finally {
            segment.close();
            delete(home);
        }
        return row;
    }

    private static List<Object> offsetIndex(OffsetIndex index) {
        List<Object> entries = new ArrayList<>();
        for (int slot = 0; slot < index.entries(); slot++) {
            entries.add(List.of(index.entry(slot).offset(), index.entry(slot).position()));
        }
        return entries;
    }

    private static void delete(Path home) throws IOException {
        try (Stream<Path> paths = Files.walk(home)) {
            for (Path path : paths.sorted(java.util.Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }
}
