import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedSum;

/**
 * What Kafka's sampled stats say. Each line of standard input is {"run": [[now ms, value or null], ...]}, each line of standard
 * output {"run": [[now ms, value, rate, avg, max], ...]}, null for NaN. Run: java -cp "libs/*" Stats.java
 */
public class Stats {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        MetricConfig config = new MetricConfig().samples(2).timeWindow(30, TimeUnit.SECONDS);
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().filter(line -> !line.isBlank()).toList();
        for (String line : lines) {
            JsonNode run = JSON.readTree(line).get("run");
            List<Object> steps = new ArrayList<>();
            for (int step = 0; step < run.size(); step++) {
                long now = run.get(step).get(0).asLong();
                List<Object> row = new ArrayList<>(Arrays.asList(now, run.get(step).get(1).isNull() ? null : run.get(step).get(1).asDouble()));
                // Measuring drops samples: what is measured is told everything anew.
                for (MeasurableStat stat : List.of(new Rate(new WindowedSum()), new Avg(), new Max())) {
                    for (int before = 0; before <= step; before++) {
                        JsonNode told = run.get(before);
                        if (!told.get(1).isNull()) {
                            stat.record(config, told.get(1).asDouble(), told.get(0).asLong());
                        }
                    }
                    double value = stat.measure(config, now);
                    row.add(Double.isNaN(value) ? null : value);
                }
                steps.add(row);
            }
            System.out.println(JSON.writeValueAsString(Map.of("run", steps)));
        }
    }
}
