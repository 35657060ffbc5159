import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/**
 * Messages through Kafka's generated classes. Each line of standard input is a JSON object with `api`, `kind`, `version`;
 * each line of standard output is the answer. Run: java -cp "libs/*" Wire.java VERB
 *   write       `json` and `unknownTags` -> {"hex"}
 *   read        `hex` -> {"json"}, by Kafka's JSON converter, with the bytes of records in base64
 *   malformed   `hex` -> {"result": "error", "exception"} or {"result": "ok", "remaining", "reserialized"}
 */
public class Wire {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final List<String> PACKAGES = List.of("common.message", "common.metadata", "coordinator.group.generated",
        "coordinator.transaction.generated", "coordinator.share.generated", "raft.generated", "server.log.remote.metadata.storage.generated");

    public static void main(String[] args) throws Exception {
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            JsonNode row = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            Class<?> type = find(row.get("api").asText());
            short version = (short) row.get("version").asInt();
            switch (args[0]) {
                case "write" -> answer.put("hex", hex(message(type, version, row), version));
                case "read" -> answer.set("json", json(type, read(type, version, ByteBuffer.wrap(bytes(row))), version));
                case "malformed" -> malformed(type, version, ByteBuffer.wrap(bytes(row)), answer);
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static byte[] bytes(JsonNode row) {
        return HEX.parseHex(row.get("hex").asText());
    }

    private static Class<?> find(String api) throws ClassNotFoundException {
        for (String suffix : List.of("Data", "")) {
            for (String name : PACKAGES) {
                try {
                    return Class.forName("org.apache.kafka." + name + "." + api + suffix);
                } catch (ClassNotFoundException elsewhere) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(api);
    }

    private static Class<?> converter(Class<?> type) throws ClassNotFoundException {
        return Class.forName(type.getName() + "JsonConverter");
    }

    private static Message message(Class<?> type, short version, JsonNode row) throws Exception {
        Message message = (Message) converter(type).getMethod("read", JsonNode.class, short.class).invoke(null, row.get("json"), version);
        for (JsonNode tag : row.path("unknownTags")) {
            Message at = at(message, tag.get("path").asText());
            at.unknownTaggedFields().add(new RawTaggedField(tag.get("tag").asInt(), HEX.parseHex(tag.get("hex").asText())));
        }
        return message;
    }

    /** The struct at a path such as topics[0].partitions[2]. */
    private static Message at(Message message, String path) throws Exception {
        Object found = message;
        for (String step : path.isEmpty() ? new String[0] : path.split("\\.")) {
            String[] parts = step.split("[\\[\\]]");
            found = found.getClass().getMethod(parts[0]).invoke(found);
            if (parts.length > 1) {
                found = new ArrayList<>((java.util.Collection<?>) found).get(Integer.parseInt(parts[1]));
            }
        }
        return (Message) found;
    }

    private static String hex(Message message, short version) {
        var cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HEX.formatHex(buffer.array());
    }

    private static Message read(Class<?> type, short version, ByteBuffer buffer) throws Exception {
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        message.read(new ByteBufferAccessor(buffer), version);
        return message;
    }

    private static JsonNode json(Class<?> type, Message message, short version) throws Exception {
        JsonNode json = (JsonNode) converter(type).getMethod("write", type, short.class).invoke(null, message, version);
        fillRecords(message, json);
        return json;
    }

    /** The converters write no bytes for fields of type records. */
    private static void fillRecords(Object message, JsonNode json) throws Exception {
        if (json.isArray()) {
            Iterator<?> items = ((Iterable<?>) message).iterator();
            for (JsonNode item : json) {
                fillRecords(items.next(), item);
            }
        } else if (json instanceof ObjectNode object) {
            List<Map.Entry<String, JsonNode>> fields = new ArrayList<>(object.properties());
            for (Map.Entry<String, JsonNode> field : fields) {
                Object value = message.getClass().getMethod(field.getKey()).invoke(message);
                // Its package is another one in Kafka 4.
                if (value != null && value.getClass().getSimpleName().equals("MemoryRecords")) {
                    ByteBuffer buffer = ((ByteBuffer) value.getClass().getMethod("buffer").invoke(value)).duplicate();
                    byte[] data = new byte[buffer.remaining()];
                    buffer.get(data);
                    object.set(field.getKey(), new BinaryNode(data));
                } else if (value instanceof Message || value instanceof Iterable) {
                    fillRecords(value, field.getValue());
                }
            }
        }
    }

    private static void malformed(Class<?> type, short version, ByteBuffer buffer, ObjectNode answer) throws Exception {
        try {
            Message message = read(type, version, buffer);
            answer.put("result", "ok").put("remaining", buffer.remaining()).put("reserialized", hex(message, version));
        } catch (RuntimeException | OutOfMemoryError error) {
            answer.put("result", "error").put("exception", error.getClass().getName());
        }
    }
}
