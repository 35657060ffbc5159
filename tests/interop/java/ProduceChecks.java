import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * What a Kafka leader makes of produced batches: the checks of the request, the checksum, then LogValidator.
 * Each line of the input is "CODEC LEVEL TIMESTAMP_TYPE BEFORE_MAX AFTER_MAX COMPACTED NOW OFFSET EPOCH HEX", the
 * codec "producer" or a type, the level "-" for the default. Each line of the output is "ok HEX", or
 * "error CODE INDEX,INDEX.. CLASS" with the indexes of refused records.
 */
public class ProduceChecks {
    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    private static String answer(String[] fields) {
        try {
            return "ok " + HexFormat.of().formatHex(append(fields));
        } catch (RecordValidationException e) {
            String indexes = e.recordErrors().stream().map(error -> String.valueOf(error.batchIndex)).collect(Collectors.joining(","));
            return "error " + Errors.forException(e.invalidException()).code() + " " + indexes + " " + e.invalidException().getClass().getSimpleName();
        } catch (Throwable e) {
            return "error " + Errors.forException(e).code() + " - " + e.getClass().getSimpleName();
        }
    }

    private static Compression target(String name, String level, CompressionType source) {
        int number = level.equals("-") ? 0 : Integer.parseInt(level);
        return switch (name) {
            case "producer" -> Compression.of(source).build();
            case "gzip" -> level.equals("-") ? Compression.gzip().build() : Compression.gzip().level(number).build();
            case "lz4" -> level.equals("-") ? Compression.lz4().build() : Compression.lz4().level(number).build();
            case "zstd" -> level.equals("-") ? Compression.zstd().build() : Compression.zstd().level(number).build();
            case "snappy" -> Compression.snappy().build();
            default -> Compression.NONE;
        };
    }

    private static byte[] append(String[] fields) {
        var records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(fields[9])));
        ProduceRequest.validateRecords((short) 13, records);
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (!batch.isValid()) {
                throw new CorruptRecordException("checksum");
            }
            source = batch.compressionType();
        }
        long now = Long.parseLong(fields[6]);
        var time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, given) -> now);
        var metrics = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(LogValidator.class.getClassLoader(),
            new Class<?>[] {LogValidator.MetricsRecorder.class}, (proxy, method, given) -> null);
        var validator = new LogValidator(records, new TopicPartition("checked", 0), time, source, target(fields[0], fields[1], source),
            fields[5].equals("true"), (byte) 2, TimestampType.forName(fields[2]), Long.parseLong(fields[3]), Long.parseLong(fields[4]),
            Integer.parseInt(fields[8]), AppendOrigin.CLIENT);
        var offset = PrimitiveRef.ofLong(Long.parseLong(fields[7]));
        ByteBuffer validated = validator.validateMessagesAndAssignOffsets(offset, metrics, BufferSupplier.NO_CACHING).validatedRecords().buffer();
        byte[] bytes = new byte[validated.remaining()];
        validated.get(bytes);
        return bytes;
    }
}
