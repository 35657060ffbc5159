"""One sentence on every configuration key that DescribeConfigs shows; read through :mod:`kraftlog.config_table`.

One line per key, name and sentence parted by a tab. A key of a topic, a group and a broker with the same name has the
same meaning.
"""

from __future__ import annotations

__all__ = ["DESCRIPTIONS"]

DESCRIPTIONS = r"""
add.partitions.to.txn.retry.backoff.max.ms	Upper limit of the pause between two attempts to add partitions to a transaction.
add.partitions.to.txn.retry.backoff.ms	First pause before another attempt to add partitions to a transaction.
advertised.listeners	Addresses that clients and other nodes are given, when they differ from the addresses that are bound.
alter.config.policy.class.name	Class of a policy that may refuse changes of settings.
alter.log.dirs.replication.quota.window.num	Number of samples kept for the quota of moves between log directories.
alter.log.dirs.replication.quota.window.size.seconds	Length of one sample for the quota of moves between log directories.
authorizer.class.name	Class that decides who may do what.
auto.create.topics.enable	Whether a topic comes into being when a client uses it.
auto.leader.rebalance.enable	Whether leadership returns to the preferred replica by itself.
background.threads	Size of the pool for background work of the broker.
broker.heartbeat.interval.ms	Time between two heartbeats of a broker to the active controller.
broker.id	Older name of node.id.
broker.rack	Rack or zone of the broker; replicas of a partition are spread over racks.
broker.session.timeout.ms	Silence after which the controller fences a broker.
client.quota.callback.class	Class that computes the quotas of clients.
compression.gzip.level	Level for batches that the broker compresses with gzip.
compression.lz4.level	Level for batches that the broker compresses with LZ4.
compression.type	Codec in which records are stored; producer keeps the codec of the batch.
compression.zstd.level	Level for batches that the broker compresses with Zstandard.
config.providers	Names of providers that replace variables in settings.
connection.failed.authentication.delay.ms	Pause before a connection that failed to authenticate is closed.
connections.max.idle.ms	Idle time after which a connection is closed.
connections.max.reauth.ms	Longest life of a SASL session before the client has to authenticate again; 0 is no limit.
controlled.shutdown.enable	Whether a broker hands over its leaderships before it stops.
controller.listener.names	Listeners that serve the controller; the first one is used to reach other controllers.
controller.performance.always.log.threshold.ms	Duration from which an event of the controller is always logged.
controller.performance.sample.period.ms	Time over which the controller summarizes the durations of its events.
controller.quorum.append.linger.ms	Longest time that the leader gathers metadata records before it writes them.
controller.quorum.auto.join.enable	Whether a controller that is not a voter adds itself to the voters.
controller.quorum.bootstrap.servers	Controllers that a node asks for the leader of the metadata quorum.
controller.quorum.election.backoff.max.ms	Longest random pause before another election.
controller.quorum.election.timeout.ms	Time without votes after which a candidate begins a new election.
controller.quorum.fetch.max.bytes	Most bytes that a replica of the metadata log asks for at once.
controller.quorum.fetch.snapshot.max.bytes	Most bytes of a metadata snapshot that a replica asks for at once.
controller.quorum.fetch.timeout.ms	Time without an answer of the leader after which a voter begins an election.
controller.quorum.fetch.wait.max.ms	Longest wait of a leader before it answers a fetch of this replica for which there is nothing new.
controller.quorum.request.timeout.ms	Longest wait for an answer of another controller.
controller.quorum.retry.backoff.ms	Pause before a request to another controller is sent again.
controller.quorum.voters	Static set of voters, each in the form id@host:port.
controller.quota.window.num	Number of samples kept for the quota of changes at the controller.
controller.quota.window.size.seconds	Length of one sample for the quota of changes at the controller.
controller.socket.timeout.ms	Longest wait of a broker for an answer of the controller.
cordoned.log.dirs	Log directories that get no new replicas.
create.topic.policy.class.name	Class of a policy that may refuse new topics.
default.replication.factor	Replicas of a topic whose creator names no number.
delegation.token.expiry.check.interval.ms	Time between two searches for expired delegation tokens.
delegation.token.expiry.time.ms	Life of a delegation token that is not renewed.
delegation.token.max.lifetime.ms	Longest life of a delegation token, with all renewals.
delegation.token.secret.key	Secret that signs delegation tokens; the same on every node.
delete.records.purgatory.purge.interval.requests	Number of waiting DeleteRecords requests after which finished ones are removed.
delete.topic.enable	Whether topics can be deleted.
early.start.listeners	Listeners that accept connections before the authorizer is ready.
fetch.max.bytes	Most bytes of records in one fetch response.
fetch.purgatory.purge.interval.requests	Number of waiting fetch requests after which finished ones are removed.
follower.fetch.last.tiered.offset.enable	Whether a new follower begins at the end of the tiered part of the log.
group.consumer.assignment.interval.ms	Shortest time between two assignments of a consumer group.
group.consumer.assignors	Strategies by which the coordinator assigns partitions to consumers; the first is the default.
group.consumer.heartbeat.interval.ms	Heartbeat interval that the coordinator sends to consumers.
group.consumer.max.assignment.interval.ms	Upper bound for the assignment interval of a single group.
group.consumer.max.heartbeat.interval.ms	Upper bound for the heartbeat interval of a single group.
group.consumer.max.session.timeout.ms	Upper bound for the session timeout of a single group.
group.consumer.max.size	Most members of one consumer group.
group.consumer.migration.policy	Directions in which groups may move between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms	Lower bound for the assignment interval of a single group.
group.consumer.min.heartbeat.interval.ms	Lower bound for the heartbeat interval of a single group.
group.consumer.min.session.timeout.ms	Lower bound for the session timeout of a single group.
group.consumer.session.timeout.ms	Silence after which a consumer is removed from its group.
group.coordinator.append.linger.ms	Longest time that the group coordinator gathers records before it writes them.
group.coordinator.background.threads	Threads of the group coordinator for work beside requests.
group.coordinator.cached.buffer.max.bytes	Largest write buffer that the group coordinator keeps for reuse.
group.coordinator.rebalance.protocols	Group protocols that the broker serves.
group.coordinator.threads	Threads that run the group coordinator.
group.initial.rebalance.delay.ms	Time that a new group waits for further members before its first assignment.
group.max.session.timeout.ms	Longest session timeout that a member of a classic group may ask for.
group.max.size	Most members of one classic group.
group.min.session.timeout.ms	Shortest session timeout that a member of a classic group may ask for.
group.share.assignment.interval.ms	Shortest time between two assignments of a share group.
group.share.assignors	Strategies by which the coordinator assigns partitions to members of share groups.
group.share.delivery.count.limit	Number of times that a record is delivered to a share group.
group.share.heartbeat.interval.ms	Heartbeat interval that the coordinator sends to members of share groups.
group.share.max.assignment.interval.ms	Upper bound for the assignment interval of a single share group.
group.share.max.delivery.count.limit	Upper bound for the delivery limit of a single share group.
group.share.max.heartbeat.interval.ms	Upper bound for the heartbeat interval of a single share group.
group.share.max.partition.max.record.locks	Upper bound for the record locks of a single share group.
group.share.max.record.lock.duration.ms	Upper bound for the lock duration of a single share group.
group.share.max.session.timeout.ms	Upper bound for the session timeout of a single share group.
group.share.max.share.sessions	Most share sessions that a broker keeps.
group.share.max.size	Most members of one share group.
group.share.min.assignment.interval.ms	Lower bound for the assignment interval of a single share group.
group.share.min.delivery.count.limit	Lower bound for the delivery limit of a single share group.
group.share.min.heartbeat.interval.ms	Lower bound for the heartbeat interval of a single share group.
group.share.min.partition.max.record.locks	Lower bound for the record locks of a single share group.
group.share.min.record.lock.duration.ms	Lower bound for the lock duration of a single share group.
group.share.min.session.timeout.ms	Lower bound for the session timeout of a single share group.
group.share.partition.max.record.locks	Most records of one partition that a share group has locked at once.
group.share.record.lock.duration.ms	Time for which a record is locked for the member that acquired it.
group.share.session.timeout.ms	Silence after which a member is removed from its share group.
group.streams.assignment.interval.ms	Shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms	Heartbeat interval that the coordinator sends to members of streams groups.
group.streams.initial.rebalance.delay.ms	Time that a new streams group waits for further members before its first assignment.
group.streams.max.assignment.interval.ms	Upper bound for the assignment interval of a single streams group.
group.streams.max.heartbeat.interval.ms	Upper bound for the heartbeat interval of a single streams group.
group.streams.max.session.timeout.ms	Upper bound for the session timeout of a single streams group.
group.streams.max.size	Most members of one streams group.
group.streams.max.standby.replicas	Upper bound for the standby replicas of a single streams group.
group.streams.min.assignment.interval.ms	Lower bound for the assignment interval of a single streams group.
group.streams.min.heartbeat.interval.ms	Lower bound for the heartbeat interval of a single streams group.
group.streams.min.session.timeout.ms	Lower bound for the session timeout of a single streams group.
group.streams.num.standby.replicas	Standby replicas of each task of a streams group.
group.streams.session.timeout.ms	Silence after which a member is removed from its streams group.
initial.broker.registration.timeout.ms	Time in which a starting broker has to be registered, or it stops.
inter.broker.listener.name	Listener on which brokers reach each other.
kafka.metrics.polling.interval.secs	Time between two reports of the Yammer metrics reporters.
kafka.metrics.reporters	Classes that report Yammer metrics.
leader.imbalance.check.interval.seconds	Time between two checks whether leaders are the preferred replicas.
listener.security.protocol.map	Security protocol of each listener name.
listeners	Addresses that the node binds, each with the name of its listener.
log.cleaner.backoff.ms	Pause of a cleaner thread that found nothing to clean.
log.cleaner.dedupe.buffer.size	Memory of all cleaner threads for the keys of the records that they compact.
log.cleaner.delete.retention.ms	Time for which a compacted log keeps tombstones, for topics that do not say.
log.cleaner.enable	Whether logs with the cleanup policy compact are compacted.
log.cleaner.io.buffer.load.factor	Share of the deduplication buffer that may be filled.
log.cleaner.io.buffer.size	Memory of all cleaner threads for reading and writing.
log.cleaner.io.max.bytes.per.second	Most bytes per second that all cleaner threads read and write.
log.cleaner.max.compaction.lag.ms	Longest time that a record may stay uncompacted, for topics that do not say.
log.cleaner.min.cleanable.ratio	Share of uncompacted bytes from which a log is worth compacting, for topics that do not say.
log.cleaner.min.compaction.lag.ms	Time for which a record stays uncompacted at least, for topics that do not say.
log.cleaner.threads	Threads that compact logs.
log.cleanup.policy	What happens to old segments of topics that do not say: delete, compact, or both.
log.dir	A single data directory; log.dirs goes before it.
log.dir.failure.timeout.ms	Time after which a broker stops when the controller does not learn of its failed directory.
log.dirs	Data directories, separated by commas.
log.flush.interval.messages	Number of unflushed records that makes a flush due.
log.flush.interval.ms	Age of unflushed records that makes a flush due.
log.flush.offset.checkpoint.interval.ms	Time between two writes of the recovery points.
log.flush.on.ack	Whether an acknowledgement of acks=all waits until the records are on disk.
log.flush.scheduler.interval.ms	Time between two checks whether a log has to be flushed.
log.flush.start.offset.checkpoint.interval.ms	Time between two writes of the log start offsets.
log.index.interval.bytes	Bytes of records between two entries of the offset index.
log.index.size.max.bytes	Largest size of an index file.
log.local.retention.bytes	Bytes of a tiered partition that stay on local disk; -2 takes log.retention.bytes.
log.local.retention.ms	Time for which segments of a tiered partition stay on local disk; -2 takes log.retention.ms.
log.message.timestamp.after.max.ms	How far the timestamp of a record may lie after the time of the broker.
log.message.timestamp.before.max.ms	How far the timestamp of a record may lie before the time of the broker.
log.message.timestamp.type	Whether records keep the time of the producer or get that of the append.
log.preallocate	Whether a new segment takes its whole size on disk at once.
log.retention.bytes	Size of a partition from which its oldest segments are deleted; -1 is no limit.
log.retention.check.interval.ms	Time between two searches for segments that can be deleted.
log.retention.hours	Hours after which segments are deleted; minutes and milliseconds go before it.
log.retention.minutes	Minutes after which segments are deleted; milliseconds go before it.
log.retention.ms	Time after which segments are deleted; -1 is no limit.
log.roll.hours	Hours after which a new segment is begun; log.roll.ms goes before it.
log.roll.jitter.hours	Most hours by which a new segment is begun early at random; log.roll.jitter.ms goes before it.
log.roll.jitter.ms	Longest time by which a new segment is begun early at random.
log.roll.ms	Time after which a new segment is begun.
log.segment.bytes	Largest size of a segment file.
log.segment.delete.delay.ms	Time between the renaming of a deleted segment and the removal of its files.
max.connection.creation.rate	Most new connections per second.
max.connections	Most connections open at once.
max.connections.per.ip	Most connections open at once from one address.
max.connections.per.ip.overrides	Limits for single addresses, each in the form address:count.
max.incremental.fetch.session.cache.slots	Most incremental fetch sessions that the broker keeps.
max.request.partition.size.limit	Most partitions in one answer to DescribeTopicPartitions.
message.max.bytes	Largest record batch that the broker takes.
metadata.log.dir	Directory with the metadata log; without it the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots	Bytes of metadata records after which a snapshot is made.
metadata.log.max.snapshot.interval.ms	Time after which a snapshot of new metadata records is made; 0 is no limit.
metadata.log.segment.bytes	Largest size of a segment of the metadata log.
metadata.log.segment.ms	Time after which a new segment of the metadata log is begun.
metadata.max.idle.interval.ms	Time without metadata records after which the active controller writes an empty one; 0 for never.
metadata.max.retention.bytes	Size of the metadata log and its snapshots from which the oldest are deleted.
metadata.max.retention.ms	Age from which segments and snapshots of the metadata log are deleted.
metric.reporters	Classes that report metrics.
metrics.num.samples	Number of samples that a metric is computed from.
metrics.recording.level	Most detailed level of metrics that is recorded.
metrics.sample.window.ms	Length of one sample of a metric.
min.insync.replicas	In-sync replicas that a write with acks=all needs, at most as many as there are replicas.
node.id	Number of the node in the cluster.
num.io.threads	Threads that handle requests.
num.network.threads	Threads of each listener that read requests and write responses.
num.partitions	Partitions of a topic whose creator names no number.
num.recovery.threads.per.data.dir	Threads of each data directory that open logs at start and close them at the end.
num.replica.alter.log.dirs.threads	Threads that move replicas between log directories.
num.replica.fetchers	Threads that fetch from each other broker.
offset.metadata.max.bytes	Largest text that may be committed with an offset.
offsets.commit.timeout.ms	Longest wait of an offset commit for the replicas.
offsets.load.buffer.size	Bytes read at once when committed offsets are loaded.
offsets.retention.check.interval.ms	Time between two searches for expired offsets.
offsets.retention.minutes	Minutes for which offsets of an empty group are kept.
offsets.topic.compression.codec	Codec of the offsets topic, as the number that batches have.
offsets.topic.num.partitions	Partitions of the offsets topic, when it is created.
offsets.topic.replication.factor	Replicas of the offsets topic, when it is created.
offsets.topic.segment.bytes	Largest size of a segment of the offsets topic.
principal.builder.class	Class that makes the principal of an authenticated connection.
process.roles	Roles of the node: broker, controller, or both.
producer.id.expiration.ms	Time without writes after which a partition forgets an idempotent producer.
producer.purgatory.purge.interval.requests	Number of waiting produce requests after which finished ones are removed.
queued.max.request.bytes	Most bytes of requests that wait to be handled; -1 is no limit.
queued.max.requests	Most requests that wait to be handled before the network threads stop reading.
quota.window.num	Number of samples kept for quotas of clients.
quota.window.size.seconds	Length of one sample for quotas of clients.
remote.fetch.max.wait.ms	Longest wait for records in remote storage.
remote.list.offsets.request.timeout.ms	Longest wait for offsets in remote storage.
remote.log.index.file.cache.total.size.bytes	Space on local disk for indexes that were fetched from remote storage.
remote.log.manager.copier.thread.pool.size	Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second	Most bytes per second copied to remote storage.
remote.log.manager.copy.quota.window.num	Number of samples kept for the quota of copies to remote storage.
remote.log.manager.copy.quota.window.size.seconds	Length of one sample for the quota of copies to remote storage.
remote.log.manager.expiration.thread.pool.size	Threads that delete expired segments in remote storage.
remote.log.manager.fetch.max.bytes.per.second	Most bytes per second fetched from remote storage.
remote.log.manager.fetch.quota.window.num	Number of samples kept for the quota of fetches from remote storage.
remote.log.manager.fetch.quota.window.size.seconds	Length of one sample for the quota of fetches from remote storage.
remote.log.manager.follower.thread.pool.size	Threads that follow the remote part of logs on followers.
remote.log.manager.task.interval.ms	Time between two runs of the tasks of remote storage.
remote.log.manager.thread.pool.size	Threads for the tasks of remote storage.
remote.log.metadata.custom.metadata.max.bytes	Most bytes of metadata that a remote storage plug-in may keep for a segment.
remote.log.metadata.manager.class.name	Class that keeps the metadata of remote segments.
remote.log.metadata.manager.class.path	Class path of the class that keeps the metadata of remote segments.
remote.log.metadata.manager.impl.prefix	Prefix of the settings that are passed to that class.
remote.log.metadata.manager.listener.name	Listener that the class uses to reach brokers.
remote.log.reader.max.pending.tasks	Most reads from remote storage that wait.
remote.log.reader.threads	Threads that read from remote storage.
remote.log.storage.manager.class.name	Class that stores segments remotely.
remote.log.storage.manager.class.path	Class path of the class that stores segments remotely.
remote.log.storage.manager.impl.prefix	Prefix of the settings that are passed to the class that stores segments remotely.
remote.log.storage.system.enable	Whether the broker uses tiered storage.
replica.fetch.backoff.ms	Pause of a follower after a failed fetch.
replica.fetch.max.bytes	Most bytes of one partition that a follower asks for at once.
replica.fetch.min.bytes	Bytes that an answer to a follower waits for.
replica.fetch.response.max.bytes	Most bytes of one answer to a follower.
replica.fetch.wait.max.ms	Longest wait of a fetch of a follower.
replica.high.watermark.checkpoint.interval.ms	Time between two writes of the high watermarks.
replica.lag.time.max.ms	Time after which a follower that is behind leaves the in-sync replicas.
replica.selector.class	Class that chooses the replica a consumer reads from.
replica.socket.receive.buffer.bytes	Receive buffer of the connections of followers.
replica.socket.timeout.ms	Longest wait of a follower for an answer.
replication.quota.window.num	Number of samples kept for the quota of replication.
replication.quota.window.size.seconds	Length of one sample for the quota of replication.
request.timeout.ms	Longest wait for an answer before a request fails or is sent again.
sasl.client.callback.handler.class	Class of the callbacks of a SASL client.
sasl.enabled.mechanisms	SASL mechanisms that the broker offers.
sasl.jaas.config	Login context of SASL connections, in the form of JAAS files.
sasl.kerberos.kinit.cmd	Path of the Kerberos kinit command.
sasl.kerberos.min.time.before.relogin	Shortest time between two attempts to refresh a Kerberos login.
sasl.kerberos.principal.to.local.rules	Rules that turn Kerberos principals into short names.
sasl.kerberos.service.name	Kerberos principal under which the broker runs.
sasl.kerberos.ticket.renew.jitter	Share of random time added to the renewal of a Kerberos ticket.
sasl.kerberos.ticket.renew.window.factor	Share of the life of a Kerberos ticket after which it is renewed.
sasl.login.callback.handler.class	Class of the callbacks of a SASL login.
sasl.login.class	Class that performs the SASL login.
sasl.login.connect.timeout.ms	Longest wait for a connection to the provider of logins.
sasl.login.read.timeout.ms	Longest wait for an answer of the provider of logins.
sasl.login.refresh.buffer.seconds	Seconds before its end in which a credential is refreshed at the latest.
sasl.login.refresh.min.period.seconds	Seconds for which a refreshed credential is used at least.
sasl.login.refresh.window.factor	Share of the life of a credential after which it is refreshed.
sasl.login.refresh.window.jitter	Share of random time added to the refresh of a credential.
sasl.login.retry.backoff.max.ms	Longest pause between two attempts to log in.
sasl.login.retry.backoff.ms	First pause between two attempts to log in.
sasl.mechanism.controller.protocol	SASL mechanism of connections to controllers.
sasl.mechanism.inter.broker.protocol	SASL mechanism of connections between brokers.
sasl.oauthbearer.assertion.algorithm	Algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud	Audience of an OAuth assertion.
sasl.oauthbearer.assertion.claim.exp.seconds	Life of an OAuth assertion in seconds.
sasl.oauthbearer.assertion.claim.iss	Issuer of an OAuth assertion.
sasl.oauthbearer.assertion.claim.jti.include	Whether an OAuth assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds	Seconds before the present from which an OAuth assertion is valid.
sasl.oauthbearer.assertion.claim.sub	Subject of an OAuth assertion.
sasl.oauthbearer.assertion.file	File with an OAuth assertion that was made before.
sasl.oauthbearer.assertion.private.key.file	File with the key that signs OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase	Passphrase of the key that signs OAuth assertions.
sasl.oauthbearer.assertion.template.file	File with further headers and claims of an OAuth assertion.
sasl.oauthbearer.client.credentials.client.id	Client id for the OAuth grant client_credentials.
sasl.oauthbearer.client.credentials.client.secret	Client secret for the OAuth grant client_credentials.
sasl.oauthbearer.clock.skew.seconds	Seconds by which the clocks of broker and OAuth provider may differ.
sasl.oauthbearer.expected.audience	Audiences that a token may be made for.
sasl.oauthbearer.expected.issuer	Issuer that a token has to be of.
sasl.oauthbearer.jwks.endpoint.refresh.ms	Time between two fetches of the keys of the OAuth provider.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms	Longest pause between two attempts to fetch the keys of the OAuth provider.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms	First pause between two attempts to fetch the keys of the OAuth provider.
sasl.oauthbearer.jwks.endpoint.url	Address of the keys of the OAuth provider.
sasl.oauthbearer.jwt.retriever.class	Class that gets tokens.
sasl.oauthbearer.jwt.validator.class	Class that checks tokens.
sasl.oauthbearer.scope	Scope that a token is asked for.
sasl.oauthbearer.scope.claim.name	Name of the claim with the scope of a token.
sasl.oauthbearer.sub.claim.name	Name of the claim with the subject of a token.
sasl.oauthbearer.token.endpoint.url	Address where tokens are issued.
sasl.server.callback.handler.class	Class of the callbacks of a SASL server.
sasl.server.max.receive.size	Most bytes of one SASL message before a client is authenticated.
security.inter.broker.protocol	Security protocol of connections between brokers, when no listener is named for them.
security.providers	Classes that add Java security providers.
share.coordinator.append.linger.ms	Longest time that the share coordinator gathers records before it writes them.
share.coordinator.cached.buffer.max.bytes	Largest write buffer that the share coordinator keeps for reuse.
share.coordinator.load.buffer.size	Bytes read at once when the state of share groups is loaded.
share.coordinator.snapshot.update.records.per.snapshot	Updates after which the share coordinator writes a whole snapshot.
share.coordinator.state.topic.compression.codec	Codec of the topic with the state of share groups, as the number that batches have.
share.coordinator.state.topic.min.isr	In-sync replicas that writes to the topic with the state of share groups need.
share.coordinator.state.topic.num.partitions	Partitions of the topic with the state of share groups, when it is created.
share.coordinator.state.topic.replication.factor	Replicas of the topic with the state of share groups, when it is created.
share.coordinator.state.topic.segment.bytes	Largest size of a segment of the topic with the state of share groups.
share.coordinator.threads	Threads that run the share coordinator.
share.coordinator.write.timeout.ms	Longest wait of the share coordinator for the replicas.
share.fetch.purgatory.purge.interval.requests	Number of waiting share fetches after which finished ones are removed.
socket.connection.setup.timeout.max.ms	Upper limit of the time that a connection may take to be made.
socket.connection.setup.timeout.ms	Time that a connection may take to be made, at the first attempt.
socket.listen.backlog.size	Connections that may wait to be accepted.
socket.receive.buffer.bytes	Receive buffer of a connection. Where it is not set, and with -1, the operating system tunes it.
socket.request.max.bytes	Largest request that the node takes.
socket.send.buffer.bytes	Send buffer of a connection. Where it is not set, and with -1, the operating system tunes it.
ssl.allow.dn.changes	Whether a new certificate may have another distinguished name.
ssl.allow.san.changes	Whether a new certificate may have other alternative names.
ssl.cipher.suites	Cipher suites that TLS connections may use.
ssl.client.auth	Whether clients are asked for a certificate: none, requested or required.
ssl.enabled.protocols	TLS versions that connections may use.
ssl.endpoint.identification.algorithm	How a client compares the name of a server with its certificate; empty for not at all.
ssl.engine.factory.class	Class that makes Java's TLS engines.
ssl.key.password	Password of the private key.
ssl.keymanager.algorithm	Algorithm of Java's key manager.
ssl.keystore.certificate.chain	Certificates of this node, in PEM.
ssl.keystore.key	Private key of this node, in PEM.
ssl.keystore.location	File with the private key and certificates of this node.
ssl.keystore.password	Password of that file.
ssl.keystore.type	Format of the file with the private key.
ssl.principal.mapping.rules	Rules that turn the name in a client certificate into a principal.
ssl.protocol	TLS version that contexts are made for.
ssl.provider	Name of the Java security provider for TLS.
ssl.secure.random.implementation	Java's source of randomness for TLS.
ssl.trustmanager.algorithm	Algorithm of Java's trust manager.
ssl.truststore.certificates	Certificates that are trusted, in PEM.
ssl.truststore.location	File with the certificates that are trusted.
ssl.truststore.password	Password of the file with the trusted certificates.
ssl.truststore.type	Format of the file with the trusted certificates.
telemetry.max.bytes	Largest push of client metrics, after compression.
transaction.abort.timed.out.transaction.cleanup.interval.ms	Time between two searches for transactions that took too long.
transaction.max.timeout.ms	Longest timeout that a transaction may ask for.
transaction.partition.verification.enable	Whether a leader asks the coordinator before it takes records of a transaction.
transaction.remove.expired.transaction.cleanup.interval.ms	Time between two searches for transactional ids that have expired.
transaction.state.log.load.buffer.size	Bytes read at once when transactions are loaded.
transaction.state.log.min.isr	In-sync replicas that writes to the transaction topic need.
transaction.state.log.num.partitions	Partitions of the transaction topic, when it is created.
transaction.state.log.replication.factor	Replicas of the transaction topic, when it is created.
transaction.state.log.segment.bytes	Largest size of a segment of the transaction topic.
transaction.two.phase.commit.enable	Whether transactions may take part in a two-phase commit.
transactional.id.expiration.ms	Time without transactions after which a transactional id is forgotten.
unclean.leader.election.enable	Whether a replica that is not in sync may become leader, at the price of lost records.
cleanup.policy	What happens to old segments of the topic: delete, compact, or both.
delete.retention.ms	Time for which a compacted topic keeps tombstones.
file.delete.delay.ms	Time between the renaming of a deleted file and its removal.
flush.messages	Number of unflushed records that makes a flush of a partition due.
flush.ms	Age of unflushed records that makes a flush of a partition due.
follower.replication.throttled.replicas	Replicas whose fetching is held to the quota of replication.
index.interval.bytes	Bytes of records between two entries of a partition's offset index.
leader.replication.throttled.replicas	Replicas whose serving of followers is held to the quota of replication.
local.retention.bytes	Bytes of a tiered partition that stay on local disk; -2 takes retention.bytes.
local.retention.ms	Time for which segments of a tiered partition stay on local disk; -2 takes retention.ms.
max.compaction.lag.ms	Longest time that a record of a compacted topic may stay uncompacted.
max.message.bytes	Largest record batch that the topic takes.
message.timestamp.after.max.ms	How far a record's timestamp may lie after the time of the broker.
message.timestamp.before.max.ms	How far a record's timestamp may lie before the time of the broker.
message.timestamp.type	Whether records of the topic keep the time of the producer or get that of the append.
min.cleanable.dirty.ratio	Share of uncompacted bytes from which a partition is worth compacting.
min.compaction.lag.ms	Time for which a record of a compacted topic stays uncompacted at least.
preallocate	Whether a new segment of the topic takes its whole size on disk at once.
remote.log.copy.disable	Whether segments are no longer copied to remote storage.
remote.log.delete.on.disable	Whether remote segments are deleted when tiered storage is turned off for the topic.
remote.storage.enable	Whether the topic uses tiered storage.
retention.bytes	Size of a partition of the topic from which its oldest segments are deleted; -1 is no limit.
retention.ms	Time after which segments of the topic are deleted; -1 is no limit.
segment.bytes	Largest size of a segment file of the topic.
segment.index.bytes	Largest size of an index file of the topic.
segment.jitter.ms	Longest time by which a new segment of the topic is begun early at random.
segment.ms	Time after which a new segment of the topic is begun.
consumer.assignment.interval.ms	Shortest time between two assignments of this consumer group.
consumer.heartbeat.interval.ms	Time between two heartbeats of the members of this consumer group.
consumer.session.timeout.ms	Silence after which a member is removed from this consumer group.
share.assignment.interval.ms	Shortest time between two assignments of this share group.
share.auto.offset.reset	Where this share group begins: earliest, latest, or by_duration with an ISO 8601 duration.
share.delivery.count.limit	Number of times that a record is delivered to this share group.
share.heartbeat.interval.ms	Time between two heartbeats of the members of this share group.
share.isolation.level	Whether this share group reads records of open and aborted transactions.
share.partition.max.record.locks	Most records of one partition that this share group has locked at once.
share.record.lock.duration.ms	Time for which a record is locked for the member of this share group that acquired it.
share.renew.acknowledge.enable	Whether members of this share group may renew the lock of a record.
share.session.timeout.ms	Silence after which a member is removed from this share group.
streams.assignment.interval.ms	Shortest time between two assignments of this streams group.
streams.heartbeat.interval.ms	Time between two heartbeats of the members of this streams group.
streams.initial.rebalance.delay.ms	Time that this streams group, when new, waits for further members before its first assignment.
streams.num.standby.replicas	Standby replicas of each task of this streams group.
streams.session.timeout.ms	Silence after which a member is removed from this streams group.
interval.ms	Time between two pushes of metrics by the clients that match.
match	Patterns that a client has to match to push metrics.
metrics	Prefixes of the names of metrics that clients push.
"""
