import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * What StandardAuthorizer decides. Each line of the input has fields with tabs between them:
 *
 * new ALLOW_EVERYONE
 * add ID KIND NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 * remove ID
 * ask PRINCIPAL HOST OPERATION KIND NAME
 * any PRINCIPAL HOST OPERATION KIND
 *
 * Each of the last two prints a line, 1 or 0. Enumerations are numbers of the protocol.
 */
public class Authorize {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 3;
        }

        @Override
        public int requestVersion() {
            return 12;
        }

        @Override
        public String clientId() {
            return "client";
        }

        @Override
        public int correlationId() {
            return 1;
        }
    }

    static Client client(String[] fields) throws Exception {
        int colon = fields[1].indexOf(':');
        KafkaPrincipal principal =
            new KafkaPrincipal(fields[1].substring(0, colon), fields[1].substring(colon + 1));
        return new Client(principal, InetAddress.getByName(fields[2]));
    }

    static boolean decide(StandardAuthorizer authorizer, String[] fields) throws Exception {
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(fields[3]));
        ResourceType kind = ResourceType.fromCode(Byte.parseByte(fields[4]));
        AuthorizationResult result;
        if (fields[0].equals("any")) {
            result = authorizer.authorizeByResourceType(client(fields), operation, kind);
        } else {
            ResourcePattern resource = new ResourcePattern(kind, fields[5], PatternType.LITERAL);
            Action action = new Action(operation, resource, 1, false, false);
            result = authorizer.authorize(client(fields), List.of(action)).get(0);
        }
        return result == AuthorizationResult.ALLOWED;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StandardAuthorizer authorizer = null;
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "new" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        "super.users", "User:root",
                        "allow.everyone.if.no.acl.found", fields[1],
                        "node.id", "1"));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                }
                case "add" -> authorizer.addAcl(
                    new Uuid(0, Long.parseLong(fields[1])),
                    new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(fields[2])),
                        fields[3],
                        PatternType.fromCode(Byte.parseByte(fields[4])),
                        fields[5],
                        fields[6],
                        AclOperation.fromCode(Byte.parseByte(fields[7])),
                        AclPermissionType.fromCode(Byte.parseByte(fields[8]))));
                case "remove" -> authorizer.removeAcl(new Uuid(0, Long.parseLong(fields[1])));
                default -> output.append(decide(authorizer, fields) ? "1\n" : "0\n");
            }
        }
        System.out.print(output);
    }
}
