import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Runs Kafka's assignors: one group as JSON per line on stdin, its target assignment as JSON per line on stdout. */
public class AssignGroups {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Map<String, ConsumerGroupPartitionAssignor> assignors =
            Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode group = json.readTree(line);
            Map<Uuid, Integer> counts = new HashMap<>();
            group.get("topics").properties().forEach(t -> counts.put(Uuid.fromString(t.getKey()), t.getValue().asInt()));
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
            for (JsonNode member : group.get("members")) {
                Set<Uuid> topics = new LinkedHashSet<>();
                member.get("topics").forEach(t -> topics.add(Uuid.fromString(t.asText())));
                Map<Uuid, Set<Integer>> assigned = new HashMap<>();
                String id = member.get("id").asText();
                member.get("assigned").properties().forEach(t -> {
                    Uuid topic = Uuid.fromString(t.getKey());
                    java.util.List<Integer> partitions = new java.util.ArrayList<>();
                    t.getValue().forEach(p -> partitions.add(p.asInt()));
                    assigned.put(topic, new HashSet<>(partitions));
                    partitions.forEach(p -> inverted.computeIfAbsent(topic, k -> new HashMap<>()).put(p, id));
                });
                JsonNode instance = member.get("instance");
                members.put(id, new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(), instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                    topics, new Assignment(assigned)));
            }
            SubscriptionType type = group.get("homogeneous").asBoolean()
                ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            GroupAssignment target = assignors.get(group.get("assignor").asText()).assign(
                new GroupSpecImpl(members, type, inverted),
                new SubscribedTopicDescriber() {
                    public int numPartitions(Uuid topic) {
                        return counts.getOrDefault(topic, -1);
                    }

                    public Set<String> racksForPartition(Uuid topic, int partition) {
                        return Set.of();
                    }
                });
            Map<String, Map<String, Set<Integer>>> answer = new TreeMap<>();
            target.members().forEach((id, part) -> {
                Map<String, Set<Integer>> topics = new TreeMap<>();
                part.partitions().forEach((topic, partitions) -> topics.put(topic.toString(), new TreeSet<>(partitions)));
                answer.put(id, topics);
            });
            System.out.println(json.writeValueAsString(answer));
        }
    }
}
