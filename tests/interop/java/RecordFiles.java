import java.io.BufferedOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Record files through Kafka's own classes. Run as a source file: java -cp "libs/*" RecordFiles.java VERB ...
 *   write FILE BASE SEED MAGIC...     batches of these formats in turn, of all codecs, at rising offsets with gaps
 *   read FILE...                      a JSON line for each batch with its records
 *   compress CODEC FILE LEVEL...      a line "LEVEL BASE64" for each: FILE as the codec's stream writes it
 */
public class RecordFiles {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    public static void main(String[] args) throws Exception {
        var out = new PrintStream(new BufferedOutputStream(System.out), false, "UTF-8");
        List<String> rest = List.of(args).subList(1, args.length);
        switch (args[0]) {
            case "write" -> write(rest);
            case "read" -> {
                for (String name : rest) {
                    read(new File(name), out);
                }
            }
            case "compress" -> compress(rest, out);
            default -> throw new IllegalArgumentException(args[0]);
        }
        out.flush();
    }

    private static Compression codec(String name, Integer level) {
        return switch (name) {
            case "none" -> Compression.NONE;
            case "snappy" -> Compression.snappy().build();
            case "gzip" -> level == null ? Compression.gzip().build() : Compression.gzip().level(level).build();
            case "lz4" -> level == null ? Compression.lz4().build() : Compression.lz4().level(level).build();
            case "zstd" -> level == null ? Compression.zstd().build() : Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static byte[] bytes(Random random, int most) {
        if (random.nextInt(5) == 0) {
            return null;
        }
        byte[] data = new byte[random.nextInt(most)];
        // Half of them compress well.
        if (random.nextBoolean()) {
            random.nextBytes(data);
        }
        return data;
    }

    private static void write(List<String> args) throws Exception {
        var random = new Random(Long.parseLong(args.get(2)));
        long offset = Long.parseLong(args.get(1));
        List<String> magics = args.subList(3, args.size());
        try (var file = Files.newOutputStream(Path.of(args.get(0)))) {
            for (int round = 0; round < 40; round++) {
                byte magic = Byte.parseByte(magics.get(round % magics.size()));
                String name = CODECS.get(random.nextInt(magic < 2 ? 4 : 5));
                var type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
                    : random.nextInt(3) == 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
                long appendTime = type == TimestampType.LOG_APPEND_TIME ? 1_600_000_000_000L + round : -1;
                offset += random.nextInt(3);
                var builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), magic, codec(name, null), type,
                    offset, appendTime, -1, (short) -1, -1, false, false, magic < 2 ? -1 : 3, Integer.MAX_VALUE);
                int count = round % 10 == 9 ? 400 : 1 + random.nextInt(12);
                for (int index = 0; index < count; index++) {
                    long timestamp = magic == 0 ? -1 : 1_500_000_000_000L + random.nextInt(1_000_000_000);
                    builder.appendWithOffset(offset, timestamp, bytes(random, 20), bytes(random, 300));
                    offset += index + 1 == count || random.nextInt(4) > 0 ? 1 : 1 + random.nextInt(5);
                }
                file.write(bytes(builder.build().buffer()));
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    private static String text(ByteBuffer buffer) {
        return buffer == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes(buffer)) + '"';
    }

    private static void read(File file, PrintStream out) throws Exception {
        try (FileRecords records = FileRecords.open(file, false)) {
            for (FileChannelRecordBatch batch : records.batches()) {
                batch.ensureValid();
                var lines = new ArrayList<String>();
                for (Record record : batch) {
                    record.ensureValid();
                    lines.add("[" + record.offset() + "," + record.timestamp() + "," + text(record.key()) + "," + text(record.value()) + "]");
                }
                out.println("{\"position\":" + batch.position() + ",\"size\":" + batch.sizeInBytes()
                    + ",\"baseOffset\":" + batch.baseOffset() + ",\"lastOffset\":" + batch.lastOffset()
                    + ",\"magic\":" + batch.magic() + ",\"crc\":" + batch.checksum()
                    + ",\"compression\":\"" + batch.compressionType().name + "\",\"timestampType\":\"" + batch.timestampType()
                    + "\",\"maxTimestamp\":" + batch.maxTimestamp() + ",\"records\":[" + String.join(",", lines) + "]}");
            }
        }
    }

    private static void compress(List<String> args, PrintStream out) throws Exception {
        byte[] data = Files.readAllBytes(Path.of(args.get(1)));
        for (String level : args.subList(2, args.size())) {
            var buffer = new ByteBufferOutputStream(1024);
            try (var stream = codec(args.get(0), Integer.valueOf(level)).wrapForOutput(buffer, (byte) 2)) {
                stream.write(data);
            }
            buffer.buffer().flip();
            out.println(level + " " + Base64.getEncoder().encodeToString(bytes(buffer.buffer())));
        }
    }
}
