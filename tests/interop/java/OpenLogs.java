// Opens partition directories with Kafka's UnifiedLog, as a starting broker does, and closes them again.
// One directory a line on stdin: path, "clean" or "unclean", recovery point, log start offset, then key=value settings,
// separated by tabs. Prints a line for each: start end segments(base:size,..) epochs(epoch:start,..)
// producers(id:lastSequence,..), or "failed" and the exception.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class OpenLogs {
    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = open(line.split("\t"), scheduler);
            } catch (Throwable thrown) {
                answer = "failed " + thrown;
            }
            System.out.println(answer.replace('\n', ' '));
        }
        scheduler.shutdown();
        Exit.exit(0);
    }

    private static String open(String[] words, KafkaScheduler scheduler) throws Exception {
        Properties settings = new Properties();
        for (int index = 4; index < words.length; index++) {
            int equals = words[index].indexOf('=');
            settings.put(words[index].substring(0, equals), words[index].substring(equals + 1));
        }
        UnifiedLog log = UnifiedLog.create(
            new File(words[0]), new LogConfig(settings), Long.parseLong(words[3]), Long.parseLong(words[2]), scheduler,
            new BrokerTopicStats(), Time.SYSTEM, 900000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600000,
            new LogDirFailureChannel(1), words[1].equals("clean"), Optional.empty(), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        String segments = log.logSegments().stream().map(one -> one.baseOffset() + ":" + one.size()).collect(Collectors.joining(","));
        String epochs = log.leaderEpochCache().epochEntries().stream()
            .map(one -> one.epoch() + ":" + one.startOffset()).collect(Collectors.joining(","));
        String producers = new TreeMap<>(log.activeProducersWithLastSequence()).entrySet().stream()
            .map(one -> one.getKey() + ":" + one.getValue()).collect(Collectors.joining(","));
        String answer = log.logStartOffset() + " " + log.logEndOffset() + " [" + segments + "] [" + epochs + "] [" + producers + "]";
        log.close();
        return answer;
    }
}
