import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.server.common.EligibleLeaderReplicasVersion;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.GroupVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.ShareVersion;
import org.apache.kafka.server.common.StreamsVersion;
import org.apache.kafka.server.common.TransactionVersion;

/** The tables of the protocol that stand in Kafka's classes, as one JSON object. Run: java -cp "libs/*" Facts.java */
public class Facts {
    public static void main(String[] args) throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("errors", errors());
        facts.put("apis", apis());
        facts.put("features", features());
        facts.put("configs", configs());
        List<Object> control = new ArrayList<>();
        for (ControlRecordType type : ControlRecordType.values()) {
            control.add(row("name", type.name(), "type", type.type()));
        }
        facts.put("controlRecordTypes", control);
        List<Object> compression = new ArrayList<>();
        for (CompressionType type : CompressionType.values()) {
            compression.add(row("name", type.name, "id", type.id));
        }
        facts.put("compressionTypes", compression);
        List<Object> metadata = new ArrayList<>();
        for (MetadataRecordType type : MetadataRecordType.values()) {
            metadata.add(row("name", type.name(), "id", type.id(), "min", type.lowestSupportedVersion(),
                "max", type.highestSupportedVersion()));
        }
        facts.put("metadataRecordTypes", metadata);
        System.out.println(new ObjectMapper().writeValueAsString(facts));
    }

    private static Map<String, Object> row(Object... pairs) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int index = 0; index < pairs.length; index += 2) {
            row.put((String) pairs[index], pairs[index + 1]);
        }
        return row;
    }

    private static List<Object> errors() {
        List<Object> rows = new ArrayList<>();
        Arrays.stream(Errors.values()).sorted(Comparator.comparingInt(Errors::code)).forEach(error ->
            rows.add(row("name", error.name(), "code", error.code(), "retriable", error.exception() instanceof RetriableException,
                "exception", error.exception() == null ? null : error.exception().getClass().getSimpleName())));
        return rows;
    }

    private static List<Object> apis() {
        List<Object> rows = new ArrayList<>();
        for (ApiKeys api : ApiKeys.values()) {
            ApiMessageType type = api.messageType;
            Map<String, Object> row = row("key", (int) api.id, "enumName", api.name(), "name", api.name, "valid", api.hasValidVersion());
            if (api.hasValidVersion()) {
                List<Integer> request = new ArrayList<>();
                List<Integer> response = new ArrayList<>();
                for (short version = api.oldestVersion(); version <= api.latestVersion(true); version++) {
                    request.add((int) type.requestHeaderVersion(version));
                    response.add((int) type.responseHeaderVersion(version));
                }
                row.put("min", (int) api.oldestVersion());
                row.put("max", (int) api.latestVersion(true));
                row.put("maxStable", (int) api.latestVersion(false));
                row.put("listeners", type.listeners().stream().map(one -> one.name().toLowerCase()).sorted().toList());
                row.put("requestHeaderVersions", request);
                row.put("responseHeaderVersions", response);
                List<Integer> deprecated = new ArrayList<>();
                for (short version = type.lowestDeprecatedVersion(); version >= 0 && version <= type.highestDeprecatedVersion(); version++) {
                    deprecated.add((int) version);
                }
                row.put("deprecatedVersions", deprecated);
            }
            row.put("clusterAction", api.clusterAction);
            row.put("forwardable", api.forwardable);
            rows.add(row);
        }
        return rows;
    }

    private static Map<String, Object> features() throws Exception {
        Map<String, Object> features = new LinkedHashMap<>();
        for (Class<? extends Enum<?>> type : List.<Class<? extends Enum<?>>>of(MetadataVersion.class, KRaftVersion.class,
                TransactionVersion.class, GroupVersion.class, EligibleLeaderReplicasVersion.class, ShareVersion.class, StreamsVersion.class)) {
            List<Object> levels = new ArrayList<>();
            for (Enum<?> level : type.getEnumConstants()) {
                levels.add(level(level));
            }
            features.put(type.getSimpleName(), levels);
            for (Field field : type.getDeclaredFields()) {
                if (!field.isEnumConstant() && Modifier.isStatic(field.getModifiers()) && Modifier.isPublic(field.getModifiers())
                        && !field.getType().isArray()) {
                    Object value = field.get(null);
                    features.put(type.getSimpleName() + "." + field.getName(), value instanceof Enum<?> one ? one.name() : String.valueOf(value));
                }
            }
        }
        return features;
    }

    /** What a level switches on: every public method without arguments that gives a plain value. */
    private static Map<String, Object> level(Enum<?> level) {
        Map<String, Object> values = new TreeMap<>();
        for (Method method : level.getDeclaringClass().getMethods()) {
            Class<?> type = method.getReturnType();
            boolean own = method.getDeclaringClass() != Object.class && method.getDeclaringClass() != Enum.class
                && method.getDeclaringClass() != Comparable.class && method.getDeclaringClass() != java.lang.constant.Constable.class;
            if (!own || method.getParameterCount() > 0 || Modifier.isStatic(method.getModifiers())
                    || !(type.isPrimitive() || type == String.class || type == Map.class) || method.getName().equals("toString")) {
                continue;
            }
            try {
                values.put(method.getName(), method.invoke(level));
            } catch (ReflectiveOperationException noSuchVersion) {
                values.put(method.getName(), "n/a");
            }
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("name", level.name());
        row.putAll(values);
        return row;
    }

    private static Map<String, Object> configs() throws Exception {
        Map<String, Object> configs = new LinkedHashMap<>();
        configs.put("broker", keys((ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null)));
        configs.put("topic", keys((ConfigDef) Class.forName("org.apache.kafka.storage.internals.log.LogConfig").getMethod("configDefCopy").invoke(null)));
        configs.put("producer", keys(ProducerConfig.configDef()));
        configs.put("consumer", keys(ConsumerConfig.configDef()));
        configs.put("admin", keys(AdminClientConfig.configDef()));
        return configs;
    }

    private static List<Object> keys(ConfigDef definitions) {
        List<Object> rows = new ArrayList<>();
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            Map<String, Object> row = row("name", key.name, "type", key.type.name());
            if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) {
                row.put("required", true);
            } else {
                row.put("default", value(key));
            }
            // The table has ranges and lists of values; "non-empty string" and the like are left out.
            String valid = key.validator == null ? "" : key.validator.toString();
            if (!valid.isEmpty() && !valid.startsWith("non-")) {
                row.put("valid", valid);
            }
            row.put("importance", key.importance.name());
            if (key.internalConfig) {
                row.put("internal", true);
            }
            rows.add(row);
        }
        return rows;
    }

    private static Object value(ConfigDef.ConfigKey key) {
        Object value = key.defaultValue;
        if (value == null || value instanceof Number || value instanceof Boolean || value instanceof List) {
            return value;
        }
        return value instanceof Class<?> type ? type.getName() : String.valueOf(value);
    }
}
