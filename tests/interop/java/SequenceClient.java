import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes 0, 1, 2, ... to one partition until a line arrives on standard input, and follows all partitions of the topic until
 * standard input ends. Lines out: "status ACKED SENT NEXT...", one NEXT per partition; "flushed"; "failed WHAT".
 * java -cp "libs/*" SequenceClient.java BOOTSTRAP TOPIC PARTITION PARTITIONS SEED
 */
public class SequenceClient {
    private static final AtomicLong ACKED = new AtomicLong();
    private static final AtomicLong SENT = new AtomicLong();
    private static volatile boolean isStopping;
    private static AtomicLongArray next;

    public static void main(String[] args) throws Exception {
        int partition = Integer.parseInt(args[2]);
        next = new AtomicLongArray(Integer.parseInt(args[3]));
        start("producer", () -> produce(args[0], args[1], partition, new Random(Long.parseLong(args[4]))));
        start("follower", () -> follow(args[0], args[1]));
        start("status", SequenceClient::report);
        var input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        isStopping = true;
        while (input.readLine() != null) {
            // until the supervisor closes it
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(String name, Runnable body) {
        var thread = new Thread(() -> {
            try {
                body.run();
            } catch (Throwable failure) {
                failed(name + ": " + failure);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void failed(String what) {
        say("failed " + what.replace('\n', ' '));
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException ended) {
            throw new IllegalStateException(ended);
        }
    }

    private static String status() {
        var line = new StringBuilder("status " + ACKED.get() + " " + SENT.get());
        for (int index = 0; index < next.length(); index++) {
            line.append(' ').append(next.get(index));
        }
        return line.toString();
    }

    private static void report() {
        String before = "";
        while (true) {
            String line = status();
            if (!before.equals(line)) {
                before = line;
                say(line);
            }
            sleep(20);
        }
    }

    private static Map<String, Object> settings(String bootstrap) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "3000");
        settings.put("socket.connection.setup.timeout.ms", "1000");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("retry.backoff.ms", "10");
        settings.put("retry.backoff.max.ms", "100");
        return settings;
    }

    private static void produce(String bootstrap, String topic, int partition, Random chance) {
        Map<String, Object> settings = settings(bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", "lz4");
        settings.put("linger.ms", "1");
        settings.put("delivery.timeout.ms", "300000");
        settings.put("max.block.ms", "300000");
        var bytes = new ByteArraySerializer();
        var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes);
        byte[] noise = new byte[1 << 16];
        chance.nextBytes(noise);
        for (long number = 0; !isStopping; number++) {
            while (SENT.get() - ACKED.get() >= 5000 && !isStopping) {
                sleep(5);
            }
            int length = chance.nextInt(1000);
            byte[] value = ByteBuffer.allocate(8 + length).putLong(number).put(noise, chance.nextInt(60000), length).array();
            long sent = number;
            producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, failure) -> {
                if (failure != null) {
                    failed("record " + sent + ": " + failure);
                } else if (!ACKED.compareAndSet(sent, sent + 1)) {
                    failed("acknowledged " + sent + " where " + ACKED.get() + " was next");
                }
            });
            SENT.set(number + 1);
            if (number % 10 == 9) {
                sleep(10);
            }
        }
        producer.flush();
        while (ACKED.get() < SENT.get()) {
            sleep(5);  // a callback that failed has said so; the supervisor gives up then
        }
        say(status());  // before it, so that the supervisor has the last numbers
        say("flushed");
    }

    private static void follow(String bootstrap, String topic) {
        Map<String, Object> settings = settings(bootstrap);
        settings.put("auto.offset.reset", "none");  // a truncation is a failure
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        var bytes = new ByteArrayDeserializer();
        var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes);
        List<TopicPartition> partitions = IntStream.range(0, next.length()).mapToObj(index -> new TopicPartition(topic, index)).toList();
        consumer.assign(partitions);
        partitions.forEach(partition -> consumer.seek(partition, 0));
        long[] offsets = new long[partitions.size()];
        while (true) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    int index = record.partition();
                    long number = ByteBuffer.wrap(record.value()).getLong();
                    if (number != next.get(index) || record.offset() < offsets[index]) {
                        throw new IllegalStateException("partition " + index + " offset " + record.offset() + ": record " + number
                            + ", " + next.get(index) + " was next");
                    }
                    offsets[index] = record.offset() + 1;
                    next.set(index, number + 1);
                }
            } catch (RetriableException later) {
                sleep(50);
            }
        }
    }
}
