// Compact partition directories with Apache Kafka's own Cleaner.
// usage: java -cp "$KAFKA_LIBS" CleanLog.java BUFFER_BYTES NOW_MS DELETE_RETENTION_MS KEY=VALUE,... ROUNDS DIRECTORY...
// Each directory is opened as after a clean stop and its high watermark put to its end; the active segment stays as it
// is. Prints, for each, the next dirty offset and the figures of the clean as one JSON line. With more than one round
// the directory is copied before each, and the best round is told: a JVM needs time to get up to speed.
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
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
        int rounds = Integer.parseInt(args[4]);
        for (String name : List.of(args).subList(5, args.length)) {
            File directory = new File(name);
            long best = Long.MAX_VALUE;
            for (int round = 1; round < rounds; round++) {
                File copy = copy(directory);
                best = Math.min(best, clean(copy, bufferBytes, nowMs, settings, Long.MAX_VALUE, false));
                delete(copy);
            }
            try {
                clean(directory, bufferBytes, nowMs, settings, best, true);
            } catch (RuntimeException refused) {
                System.out.printf("{\"partition\": \"%s\", \"error\": \"%s\"}%n", directory.getName(), refused);
            }
        }
        System.exit(0);
    }

    static long clean(File directory, int bufferBytes, long nowMs, Map<String, String> settings, long best, boolean tells)
            throws Exception {
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
        if (tells) {
            System.out.printf("{\"partition\": \"%s\", \"next_dirty_offset\": %d, \"messages_read\": %d, "
                + "\"messages_retained\": %d, \"bytes_read\": %d, \"bytes_written\": %d, \"map_messages_read\": %d, "
                + "\"invalid_messages\": %d, \"nanos\": %d}%n", partition, done.getKey(), stats.messagesRead(),
                stats.messagesWritten(), stats.bytesRead(), stats.bytesWritten(), stats.mapMessagesRead(),
                stats.invalidMessagesRead(), Math.min(best, nanos));
        }
        return nanos;
    }

    static File copy(File from) throws Exception {
        Path to = Files.createTempDirectory(from.getAbsoluteFile().getParentFile().toPath(), "round").resolve(from.getName());
        Files.createDirectory(to);
        for (File file : from.listFiles()) Files.copy(file.toPath(), to.resolve(file.getName()));
        return to.toFile();
    }

    static void delete(File directory) throws Exception {
        for (File file : directory.listFiles()) file.delete();
        directory.delete();
        directory.getParentFile().delete();
    }
}
