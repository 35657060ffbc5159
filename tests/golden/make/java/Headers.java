import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;

/** The header versions of each API, as JSON rows, of any version of kafka-clients. Run: java -cp "libs/*" Headers.java */
public class Headers {
    public static void main(String[] args) throws Exception {
        List<Object> rows = new ArrayList<>();
        for (ApiKeys api : ApiKeys.values()) {
            List<Integer> request = new ArrayList<>();
            List<Integer> response = new ArrayList<>();
            short low = api.messageType.lowestSupportedVersion();
            for (short version = low; version <= api.messageType.highestSupportedVersion(true); version++) {
                request.add((int) api.messageType.requestHeaderVersion(version));
                response.add((int) api.messageType.responseHeaderVersion(version));
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("key", (int) api.id);
            row.put("min", (int) low);
            row.put("requestHeaderVersions", request);
            row.put("responseHeaderVersions", response);
            rows.add(row);
        }
        System.out.println(new ObjectMapper().writeValueAsString(rows));
    }
}
