import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.DefaultRecord;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Crc32C;

/**
 * Sends batches with timestamps that Kafka's producer refuses. Each line of standard input is
 * {"port", "topic", "case", "codec", "timestamps"}, each line of standard output the broker's answer as JSON, baseOffset and
 * error. The key of a record is the case, its value the timestamp. Run: java -cp "libs/*" HandMade.java
 */
public class HandMade {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final short VERSION = 12; // the newest that names topics
    // Where fields of a batch begin.
    private static final int ATTRIBUTES = 21;
    private static final int BASE_TIMESTAMP = 27;
    private static final int MAX_TIMESTAMP = 35;

    public static void main(String[] args) throws Exception {
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static Map<String, Object> answer(JsonNode row) throws Exception {
        var partition = new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(MemoryRecords.readableRecords(batch(row)));
        var topic = new ProduceRequestData.TopicProduceData().setName(row.get("topic").asText()).setPartitionData(List.of(partition));
        var data = new ProduceRequestData().setAcks((short) -1).setTimeoutMs(10_000);
        data.topicData().add(topic);
        var header = new RequestHeader(ApiKeys.PRODUCE, VERSION, "golden", 1);
        ByteBuffer request = new ProduceRequest(data, VERSION).serializeWithHeader(header);
        byte[] answer;
        try (Socket socket = new Socket("127.0.0.1", row.get("port").asInt())) {
            var out = new DataOutputStream(socket.getOutputStream());
            out.writeInt(request.remaining());
            out.write(request.array(), request.arrayOffset() + request.position(), request.remaining());
            out.flush();
            var in = new DataInputStream(socket.getInputStream());
            answer = in.readNBytes(in.readInt());
        }
        ByteBuffer buffer = ByteBuffer.wrap(answer);
        ResponseHeader.parse(buffer, ApiKeys.PRODUCE.responseHeaderVersion(VERSION));
        var found = new ProduceResponseData(new ByteBufferAccessor(buffer), VERSION).responses().iterator().next().partitionResponses().get(0);
        return Map.of("baseOffset", found.baseOffset(), "error", Errors.forCode(found.errorCode()).name());
    }

    private static ByteBuffer batch(JsonNode row) throws Exception {
        CompressionType codec = CompressionType.forName(row.get("codec").asText());
        ByteBuffer key = ByteBuffer.wrap(row.get("case").asText().getBytes(StandardCharsets.UTF_8));
        JsonNode timestamps = row.get("timestamps");
        long base = timestamps.get(0).asLong();
        long most = base;
        var body = new ByteBufferOutputStream(1024);
        body.position(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        try (var out = new DataOutputStream(Compression.of(codec).build().wrapForOutput(body, (byte) 2))) {
            int delta = 0;
            for (Iterator<JsonNode> each = timestamps.elements(); each.hasNext(); delta++) {
                long timestamp = each.next().asLong();
                most = Math.max(most, timestamp);
                byte[] value = ("v" + timestamp).getBytes(StandardCharsets.UTF_8);
                DefaultRecord.writeTo(out, delta, timestamp - base, key.duplicate(), ByteBuffer.wrap(value), new Header[0]);
            }
        }
        ByteBuffer buffer = body.buffer().flip();
        DefaultRecordBatch.writeHeader(buffer, 0, timestamps.size() - 1, buffer.limit(), (byte) 2, codec, TimestampType.CREATE_TIME,
            0, 0, -1, (short) -1, -1, false, false, false, -1, timestamps.size());
        buffer.position(0);
        // Kafka's writer refuses negative times.
        buffer.putLong(BASE_TIMESTAMP, base);
        buffer.putLong(MAX_TIMESTAMP, most);
        long checksum = Crc32C.compute(buffer, ATTRIBUTES, buffer.limit() - ATTRIBUTES);
        buffer.putInt(DefaultRecordBatch.CRC_OFFSET, (int) checksum);
        return buffer;
    }
}
