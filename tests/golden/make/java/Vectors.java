import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.kafka.common.utils.Crc32C;
import org.apache.kafka.common.utils.Utils;

/**
 * Answers of Kafka's classes to the questions of the vectors. Each line of standard input is a JSON object, each line of
 * standard output is the same object with the answer. Run: java -cp "libs/*" Vectors.java KIND
 * where KIND is crc32c, varint, uuid, partitioner, batches or control.
 */
public class Vectors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            ObjectNode row = (ObjectNode) JSON.readTree(line);
            switch (args[0]) {
                case "crc32c" -> crc32c(row);
                case "varint" -> varint(row);
                case "uuid" -> uuid(row);
                case "partitioner" -> partitioner(row);
                case "batches" -> row.put("hex", hex(row.has("input") ? batch(row) : emptyBatch(row)));
                case "control" -> row.put("hex", hex(control(row).buffer()));
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println(JSON.writeValueAsString(row));
        }
    }

    private static String hex(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return HEX.formatHex(data);
    }

    private static void crc32c(ObjectNode row) {
        byte[] part = HEX.parseHex(row.get("hex").asText());
        byte[] data = new byte[part.length * row.get("times").asInt()];
        for (int position = 0; position < data.length; position += part.length) {
            System.arraycopy(part, 0, data, position, part.length);
        }
        row.put("crc32c", Crc32C.compute(data, row.get("offset").asInt(), row.get("length").asInt()));
    }

    private static void varint(ObjectNode row) {
        String kind = row.get("kind").asText();
        if (row.has("decode")) {
            ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(row.get("decode").asText()));
            try {
                row.put("value", switch (kind) {
                    case "unsignedVarint" -> Integer.toUnsignedLong(ByteUtils.readUnsignedVarint(buffer));
                    case "varint" -> (long) ByteUtils.readVarint(buffer);
                    case "varlong" -> ByteUtils.readVarlong(buffer);
                    default -> throw new IllegalStateException(kind);
                });
                row.put("consumed", buffer.position());
            } catch (IllegalArgumentException | java.nio.BufferUnderflowException error) {
                row.put("exception", error.getClass().getName());
            }
            return;
        }
        ByteBuffer buffer = ByteBuffer.allocate(16);
        long value = row.get("value").asLong();
        switch (kind) {
            case "unsignedVarint" -> ByteUtils.writeUnsignedVarint((int) value, buffer);
            case "varint" -> ByteUtils.writeVarint((int) value, buffer);
            case "varlong" -> ByteUtils.writeVarlong(value, buffer);
            case "unsignedVarlong" -> ByteUtils.writeUnsignedVarlong(value, buffer);
            default -> throw new IllegalStateException(kind);
        }
        row.put("hex", hex(buffer.flip()));
    }

    private static void uuid(ObjectNode row) {
        if (row.has("parse")) {
            try {
                row.put("text", Uuid.fromString(row.get("parse").asText()).toString());
            } catch (IllegalArgumentException error) {
                row.put("exception", error.getClass().getName());
            }
            return;
        }
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(row.get("hex").asText()));
        Uuid id = new Uuid(buffer.getLong(), buffer.getLong());
        row.put("msb", id.getMostSignificantBits()).put("lsb", id.getLeastSignificantBits()).put("text", id.toString());
        row.put("javaUuid", new java.util.UUID(id.getMostSignificantBits(), id.getLeastSignificantBits()).toString());
        row.put("reserved", Uuid.RESERVED.contains(id));
    }

    private static void partitioner(ObjectNode row) {
        if (row.has("id")) {
            int hash = row.get("id").asText().hashCode();
            row.put("javaHash", hash).put("coordinatorPartition50", Utils.abs(hash) % 50);
            return;
        }
        byte[] key = HEX.parseHex(row.get("keyHex").asText());
        row.put("murmur2", Utils.murmur2(key));
        for (int count : new int[] {1, 3, 12, 50, 1000}) {
            row.put("p" + count, BuiltInPartitioner.partitionForKey(key, count));
        }
    }

    private static byte[] base64(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static ByteBuffer batch(ObjectNode row) {
        JsonNode input = row.get("input");
        byte magic = (byte) row.get("magic").asInt();
        var compression = switch (CompressionType.forName(row.get("compression").asText())) {
            case NONE -> Compression.NONE;
            case GZIP -> Compression.gzip().build();
            case SNAPPY -> Compression.snappy().build();
            case LZ4 -> Compression.lz4().build();
            case ZSTD -> Compression.zstd().build();
        };
        var builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), magic, compression,
            magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.forName(input.get("timestampType").asText()),
            input.get("baseOffset").asLong(), input.get("logAppendTime").asLong(), input.get("producerId").asLong(),
            (short) input.get("producerEpoch").asInt(), input.get("baseSequence").asInt(), input.get("isTransactional").asBoolean(),
            false, input.get("partitionLeaderEpoch").asInt(), Integer.MAX_VALUE);
        for (JsonNode record : input.get("records")) {
            Header[] headers = new Header[record.get("headers").size()];
            for (int index = 0; index < headers.length; index++) {
                JsonNode header = record.get("headers").get(index);
                headers[index] = new RecordHeader(header.get(0).asText(), base64(header.get(1)));
            }
            long offset = record.get("offset").asLong();
            long timestamp = record.get("timestamp").asLong();
            if (magic < 2) {
                builder.appendWithOffset(offset, timestamp, base64(record.get("key")), base64(record.get("value")));
            } else {
                builder.appendWithOffset(offset, timestamp, base64(record.get("key")), base64(record.get("value")), headers);
            }
        }
        if (!input.get("overrideLastOffset").isNull()) {
            builder.overrideLastOffset(input.get("overrideLastOffset").asLong());
        }
        return builder.build().buffer();
    }

    /** The header that the cleaner leaves of a batch without records; "empty" has its fields. */
    private static ByteBuffer emptyBatch(ObjectNode row) {
        JsonNode empty = row.get("empty");
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, (byte) 2, empty.get("producerId").asLong(), (short) empty.get("producerEpoch").asInt(),
            empty.get("baseSequence").asInt(), empty.get("baseOffset").asLong(), empty.get("lastOffset").asLong(),
            empty.get("partitionLeaderEpoch").asInt(), TimestampType.forName(empty.get("timestampType").asText()),
            empty.get("maxTimestamp").asLong(), empty.get("isTransactional").asBoolean(), empty.get("isControl").asBoolean());
        row.remove("empty");
        return buffer.flip();
    }

    private static MemoryRecords control(ObjectNode row) {
        JsonNode question = row.remove("control");
        long offset = question.get("baseOffset").asLong();
        long timestamp = question.get("timestamp").asLong();
        int epoch = question.get("partitionLeaderEpoch").asInt();
        JsonNode value = question.get("value");
        ControlRecordType type = ControlRecordType.valueOf(question.get("type").asText());
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        short version = 0;
        return switch (type) {
            case ABORT, COMMIT -> MemoryRecords.withEndTransactionMarker(offset, timestamp, epoch, question.get("producerId").asLong(),
                (short) question.get("producerEpoch").asInt(), new EndTransactionMarker(type, question.get("coordinatorEpoch").asInt()));
            case LEADER_CHANGE -> leaderChange(offset, timestamp, epoch, LeaderChangeMessageJsonConverter.read(value, version(value)));
            case SNAPSHOT_HEADER -> MemoryRecords.withSnapshotHeaderRecord(offset, timestamp, epoch, buffer,
                SnapshotHeaderRecordJsonConverter.read(value, version));
            case SNAPSHOT_FOOTER -> MemoryRecords.withSnapshotFooterRecord(offset, timestamp, epoch, buffer,
                SnapshotFooterRecordJsonConverter.read(value, version));
            case KRAFT_VERSION -> MemoryRecords.withKRaftVersionRecord(offset, timestamp, epoch, buffer,
                KRaftVersionRecordJsonConverter.read(value, version));
            case KRAFT_VOTERS -> MemoryRecords.withVotersRecord(offset, timestamp, epoch, buffer,
                VotersRecordJsonConverter.read(value, version));
            default -> throw new IllegalArgumentException(type.name());
        };
    }

    /** MemoryRecords.withLeaderChangeMessage writes version 0 only. */
    private static MemoryRecords leaderChange(long offset, long timestamp, int epoch, LeaderChangeMessage message) {
        var builder = new MemoryRecordsBuilder(ByteBuffer.allocate(4096), (byte) 2, Compression.NONE, TimestampType.CREATE_TIME, offset,
            timestamp, -1, (short) -1, -1, false, true, epoch, 4096);
        builder.appendControlRecord(timestamp, ControlRecordType.LEADER_CHANGE,
            MessageUtil.toByteBufferAccessor(message, message.version()).buffer());
        return builder.build();
    }

    private static short version(JsonNode value) {
        return (short) value.get("version").asInt();
    }
}
