// Compact partition directories with Apache Kafka's own Cleaner.
// usage: java -cp "$KAFKA_LIBS" CleanLog.java BUFFER_BYTES NOW_MS DELETE_RETENTION_MS KEY=VALUE,... [DIRECTORY...]
// Each directory is opened as after a clean stop and its high watermark put to its end; the active segment stays as it
// is. Prints one JSON line for each. Without directories their names are read from standard input, one a line, so that
// one JVM has time to get up to speed.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class CleanLog {
    public static void main(String[] args) throws Exception {
        int bufferBytes = Integer.parseInt(args[0]);
        long nowMs = Long.parseLong(args[1]);
        Map<String, String> settings = new HashMap<>();
        settings.put("delete.retention.ms", args[2]);
        settings.put("cleanup.policy", "compact");
        for (String pair : args[3].split(",")) {
            int at = pair.indexOf('=');
            settings.put(pair.substring(0, at), pair.substring(at + 1));
        }
        for (String name : List.of(args).subList(4, args.length)) clean(new File(name), bufferBytes, nowMs, settings);
        if (args.length == 4) {
            BufferedReader names = new BufferedReader(new InputStreamReader(System.in));
            for (String name = names.readLine(); name != null; name = names.readLine()) {
                clean(new File(name), bufferBytes, nowMs, settings);
            }
        }
        Exit.exit(0);
    }

    static void clean(File directory, int bufferBytes, long nowMs, Map<String, String> settings) throws Exception {
        try {
            doClean(directory, bufferBytes, nowMs, settings);
        } catch (RuntimeException refused) {
            System.out.printf("{\"partition\": \"%s\", \"error\": \"%s\"}%n", directory.getName(), refused);
        }
    }

    static void doClean(File directory, int bufferBytes, long nowMs, Map<String, String> settings) throws Exception {
        Time time = Time.SYSTEM;
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(settings), 0L, Long.MAX_VALUE, scheduler,
            new BrokerTopicStats(), time, Integer.MAX_VALUE, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
            Integer.MAX_VALUE, new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        TopicPartition partition = log.topicPartition();
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(bufferBytes), 262144, 1 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "io", "bytes", time), time, done -> { });
        long start = System.nanoTime();
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(
            new LogToClean(log, log.logStartOffset(), log.lastStableOffset(), false), nowMs);
        long nanos = System.nanoTime() - start;
        CleanerStats stats = done.getValue();
        log.close();
        scheduler.shutdown();
        System.out.printf("{\"partition\": \"%s\", \"next_dirty_offset\": %d, \"messages_read\": %d, "
            + "\"messages_retained\": %d, \"bytes_read\": %d, \"bytes_written\": %d, \"map_messages_read\": %d, "
            + "\"invalid_messages\": %d, \"nanos\": %d}%n", partition, done.getKey(), stats.messagesRead(),
            stats.messagesWritten(), stats.bytesRead(), stats.bytesWritten(), stats.mapMessagesRead(),
            stats.invalidMessagesRead(), nanos);
    }
}
