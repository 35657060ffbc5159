import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Operations of Kafka's admin client. Run: java -cp "libs/*" Operations.java SETTING, where SETTING is bootstrap.servers=... or
 * bootstrap.controllers=.... Each line of standard input is an operation as JSON with its "verb", each line of standard output
 * its answer as JSON.
 */
public class Operations {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        String[] setting = args[0].split("=", 2);
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        try (Admin admin = Admin.create(Map.of(setting[0], (Object) setting[1]))) {
            for (String line : lines) {
                System.out.println(JSON.writeValueAsString(answer(admin, setting[1], JSON.readTree(line))));
            }
        }
    }

    private static Map<String, Object> answer(Admin admin, String bootstrap, JsonNode row) throws Exception {
        String name = row.path("name").asText();
        switch (row.get("verb").asText()) {
            case "describe" -> {
                return described(admin);
            }
            case "topic" -> {
                Map<String, String> configs = new HashMap<>();
                row.get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
                admin.createTopics(List.of(new NewTopic(name, row.get("partitions").asInt(), (short) 1).configs(configs))).all().get();
            }
            case "partitions" -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(row.get("count").asInt()))).all().get();
            case "delete-topic" -> admin.deleteTopics(List.of(name)).all().get();
            case "config" -> {
                var resource = new ConfigResource(ConfigResource.Type.valueOf(row.get("type").asText()), name);
                var value = row.get("value");
                var operation = new AlterConfigOp(new ConfigEntry(row.get("key").asText(), value.isNull() ? null : value.asText()),
                    value.isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
            }
            case "quota" -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", name)),
                List.of(new ClientQuotaAlteration.Op(row.get("key").asText(), row.get("value").asDouble()))))).all().get();
            case "scram" -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(name,
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), row.get("password").asText()))).all().get();
            case "delete-scram" -> admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))).all().get();
            case "acl" -> admin.createAcls(List.of(binding(row))).all().get();
            case "delete-acl" -> admin.deleteAcls(List.of(binding(row).toFilter())).all().get();
            case "produce" -> produce(bootstrap, name);
            case "add-voter" -> admin.addRaftVoter(row.get("id").asInt(), Uuid.fromString(row.get("directoryId").asText()),
                Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", row.get("port").asInt()))).all().get();
            case "remove-voter" -> admin.removeRaftVoter(row.get("id").asInt(), Uuid.fromString(row.get("directoryId").asText())).all().get();
            case "feature" -> admin.updateFeatures(Map.of(name, new FeatureUpdate((short) row.get("level").asInt(), FeatureUpdate.UpgradeType.UPGRADE)),
                new UpdateFeaturesOptions()).all().get();
            default -> throw new IllegalArgumentException(row.toString());
        }
        return Map.of("ok", true);
    }

    private static AclBinding binding(JsonNode row) {
        var pattern = new ResourcePattern(ResourceType.valueOf(row.get("type").asText()), row.get("name").asText(),
            PatternType.valueOf(row.get("pattern").asText()));
        return new AclBinding(pattern, new AccessControlEntry(row.get("principal").asText(), row.get("host").asText(),
            AclOperation.valueOf(row.get("operation").asText()), AclPermissionType.valueOf(row.get("permission").asText())));
    }

    private static void produce(String bootstrap, String topic) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class);
        try (var producer = new KafkaProducer<String, String>(settings)) {
            for (String value : List.of("one", "two", "three")) {
                producer.send(new ProducerRecord<>(topic, 0, 1_702_389_440_000L, "key", value)).get();
            }
        }
    }

    private static Map<String, Object> described(Admin admin) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, range) -> features.put(name, (int) range.maxVersionLevel()));
        row.put("finalizedFeatures", features);
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("highWatermark", quorum.highWatermark());
        found.put("leaderEpoch", quorum.leaderEpoch());
        found.put("leaderId", quorum.leaderId());
        found.put("observers", replicas(quorum.observers()));
        found.put("voters", replicas(quorum.voters()));
        row.put("quorum", found);
        return row;
    }

    private static List<Object> replicas(List<QuorumInfo.ReplicaState> states) {
        List<Object> rows = new ArrayList<>();
        for (QuorumInfo.ReplicaState state : states) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("directoryId", state.replicaDirectoryId().toString());
            row.put("id", state.replicaId());
            row.put("logEndOffset", state.logEndOffset());
            rows.add(row);
        }
        return rows;
    }
}
