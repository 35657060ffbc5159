// Tells what an application of kafkajs sees of a broker, step by step.
//
//   node story.js BOOTSTRAP PREFIX
//
// Topics and groups begin with PREFIX, which is left out of what is printed: two brokers that behave alike yield the
// same lines.
'use strict'

const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require('kafkajs')
const lz4 = require('lz4-napi')
const snappy = require('snappyjs')
const zstd = require('@bokuweb/zstd-wasm')

const PARTITIONS = 3
const PATIENCE_MS = 60_000
const [bootstrap, prefix] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING })
const say = (...words) => console.log(words.join(' ').replaceAll(prefix, ''))
const value = (label, partition, number) => `${label}/${partition}/${number}/${'v'.repeat(number % 300)}`
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const codec = (compress, decompress) => () => ({
  compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(decompress(buffer)),
})
CompressionCodecs[CompressionTypes.Snappy] = codec(snappy.compress, snappy.uncompress)
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4.compressFrameSync, lz4.decompressFrameSync)
CompressionCodecs[CompressionTypes.ZSTD] = codec((data) => zstd.compress(data), (data) => zstd.decompress(data))

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE_MS
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`not ${what} within ${PATIENCE_MS} ms`)
    await pause(20)
  }
}

// The name of what a broker answered, without words that a broker may choose.
async function code(call) {
  try {
    await call()
    return 'none'
  } catch (error) {
    return error.type || (error.cause && error.cause.type) || (error.errors && error.errors[0].type) || error.message
  }
}

const records = (label, count) => {
  const messages = []
  for (let number = 0; number < count; number++) {
    for (let partition = 0; partition < PARTITIONS; partition++) {
      messages.push({ partition, key: label, value: value(label, partition, number), headers: { n: `${number}` } })
    }
  }
  return messages
}

const createTopic = (admin, topic, configEntries = []) =>
  admin.createTopics({ topics: [{ topic: prefix + topic, numPartitions: PARTITIONS, configEntries }] })

// A member of a group; `taken` and `claims` show what it has.
async function join(name, topic, { isolation = 1, commits = true } = {}) {
  const consumer = kafka.consumer({
    groupId: prefix + name, heartbeatInterval: 200, rebalanceTimeout: 10_000, maxWaitTimeInMs: 50,
    readUncommitted: isolation === 0,
  })
  const member = { consumer, taken: [], claims: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.claims = Object.values(payload.memberAssignment).flat().length
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [prefix + topic], fromBeginning: true })
  await consumer.run({
    autoCommit: commits,
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => {
      member.taken.push({ partition, offset: message.offset, value: message.value.toString() })
    },
  })
  return member
}

// All committed, or all, values of a topic by partition, up to the plain record "end".
async function read(topic, isolation) {
  const member = await join(`reader-${topic}-${isolation}`, topic, { isolation })
  const isEnd = (found) => found.value.startsWith('end/')
  await until(`read to the end of ${topic}`, () => member.taken.filter(isEnd).length === PARTITIONS)
  await member.consumer.disconnect()
  const found = Array.from({ length: PARTITIONS }, () => [])
  for (const taken of member.taken) found[taken.partition].push(taken.value)
  return found
}

async function plain(topic) {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic: prefix + topic, messages: records('end', 1) })
  await producer.disconnect()
}

async function tell(topic) {
  for (const [name, isolation] of [['committed', 1], ['uncommitted', 0]]) {
    const found = await read(topic, isolation)
    found.forEach((values, partition) => say(`${topic}-${partition} ${name}: ${values.length} ${JSON.stringify(values)}`))
  }
}

async function codecs(admin) {
  await zstd.init()
  for (const [name, compression] of Object.entries(CompressionTypes)) {
    const topic = `codec-${name.toLowerCase()}`
    await createTopic(admin, topic)
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const part of [0, 1]) {
      await producer.send({ topic: prefix + topic, acks: -1, compression, messages: records(`${name}${part}`, 300) })
    }
    await producer.disconnect()
    await plain(topic)
    const found = await read(topic, 1)
    found.forEach((values, partition) => {
      const wanted = [0, 1].flatMap((part) => Array.from({ length: 300 }, (_, n) => value(`${name}${part}`, partition, n)))
      if (JSON.stringify(values.slice(0, -1)) !== JSON.stringify(wanted)) throw new Error(`${topic}-${partition} differs`)
      say(`${topic}-${partition}: ${values.length} values`)
    })
  }
}

async function sayOffsets(admin, query) {
  for (const { topic, partitions } of await admin.fetchOffsets(query)) {
    say(topic, JSON.stringify(partitions.sort((a, b) => a.partition - b.partition)))
  }
}

async function groups(admin) {
  const count = 50
  await createTopic(admin, 'shared')
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const send = (label) => producer.send({ topic: prefix + 'shared', acks: -1, messages: records(label, count) })
  await send('before')
  const first = await join('group', 'shared')
  await until('all read by one', () => first.taken.length === count * PARTITIONS)
  const second = await join('group', 'shared')
  await until('shared', () => first.claims + second.claims === PARTITIONS && first.claims && second.claims)
  await send('shared')
  await until('all read by two', () => first.taken.length + second.taken.length === 2 * count * PARTITIONS)
  await first.consumer.disconnect()
  await until('all with the second', () => second.claims === PARTITIONS)
  const described = await admin.describeGroups([prefix + 'group', prefix + 'none'])
  for (const group of described.groups.sort((a, b) => (a.groupId < b.groupId ? -1 : 1))) {
    say('group', group.groupId, group.errorCode, group.state, group.protocolType, group.protocol, group.members.length)
  }
  say('delete a group with a member:', await code(() => admin.deleteGroups([prefix + 'group'])))
  await second.consumer.disconnect()
  await send('after')
  await producer.disconnect()
  const third = await join('group', 'shared')
  await until('the rest read', () => third.taken.length >= count * PARTITIONS)
  await third.consumer.disconnect()
  say(`group: two members read ${first.taken.length + second.taken.length}, a later one ${third.taken.length}`)
  await sayOffsets(admin, { groupId: prefix + 'group', topics: [prefix + 'shared'] })
  await admin.setOffsets({ groupId: prefix + 'group', topic: prefix + 'shared', partitions: [{ partition: 1, offset: '7' }] })
  await sayOffsets(admin, { groupId: prefix + 'group' })
}

async function transactional(id) {
  const producer = kafka.producer({
    transactionalId: prefix + id, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 30_000,
  })
  await producer.connect()
  return producer
}

async function transactions(admin) {
  await createTopic(admin, 'txn')
  const producer = await transactional('writer')
  for (const label of ['first', 'aborted', 'second']) {
    const transaction = await producer.transaction()
    await transaction.send({ topic: prefix + 'txn', messages: records(label, 10) })
    await (label === 'aborted' ? transaction.abort() : transaction.commit())
  }
  await producer.disconnect()
  await plain('txn')
  await tell('txn')
}

async function fencing(admin) {
  await createTopic(admin, 'fenced')
  const zombie = await transactional('owned')
  const open = await zombie.transaction()
  await open.send({ topic: prefix + 'fenced', messages: records('zombie', 10) })
  const successor = await transactional('owned')
  const transaction = await successor.transaction()
  await transaction.send({ topic: prefix + 'fenced', messages: records('successor', 10) })
  await transaction.commit()
  say('send of the zombie:', await code(() => open.send({ topic: prefix + 'fenced', messages: records('late', 1) })))
  say('commit of the zombie:', await code(() => open.commit()))
  await zombie.disconnect()
  await successor.disconnect()
  await plain('fenced')
  await tell('fenced')
}

// Consume, transform and produce; each third transaction is aborted and done again.
async function move(admin) {
  const count = 20
  await createTopic(admin, 'source')
  await createTopic(admin, 'target')
  const feed = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await feed.connect()
  await feed.send({ topic: prefix + 'source', acks: -1, messages: records('moved', count) })
  await feed.disconnect()
  const producer = await transactional('mover')
  const groupId = prefix + 'movers'
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 50, heartbeatInterval: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [prefix + 'source'], fromBeginning: true })
  let rounds = 0
  let moved = 0
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async ({ batch, resolveOffset }) => {
      for (let isDone = false; !isDone; ) {
        rounds++
        const transaction = await producer.transaction()
        const messages = batch.messages.map(({ value }) => ({ partition: batch.partition, value }))
        await transaction.send({ topic: prefix + 'target', messages })
        const offset = (BigInt(batch.lastOffset()) + 1n).toString()
        const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
        await transaction.sendOffsets({ consumerGroupId: groupId, topics })
        isDone = rounds % 3 !== 2
        await (isDone ? transaction.commit() : transaction.abort())
      }
      resolveOffset(batch.lastOffset())
      moved += batch.messages.length
    },
  })
  await until('moved', () => moved === count * PARTITIONS)
  await consumer.disconnect()
  await producer.disconnect()
  await plain('target')
  const found = await read('target', 1)
  found.forEach((values, partition) => say(`target-${partition}: ${values.length} ${JSON.stringify(values)}`))
  await sayOffsets(admin, { groupId, topics: [prefix + 'source'] })
}

async function describe(admin, name) {
  const { resources } = await admin.describeConfigs({ includeSynonyms: true, resources: [{ type: 2, name }] })
  const entries = resources[0].configEntries.sort((a, b) => (a.configName < b.configName ? -1 : 1))
  for (const entry of entries) {
    say(
      entry.configName, entry.configValue, 'source', entry.configSource, 'default', entry.isDefault, 'sensitive',
      entry.isSensitive, 'read-only', entry.readOnly, 'synonyms', entry.configSynonyms.length,
    )
  }
}

async function administer(admin) {
  const topic = prefix + 'codec-none'
  await createTopic(admin, 'set', [{ name: 'retention.ms', value: '3600000' }])
  await describe(admin, prefix + 'set')
  const change = (name, value) => ({ type: 2, name: prefix + 'set', configEntries: [{ name, value }] })
  await admin.alterConfigs({ resources: [change('cleanup.policy', 'compact')] })
  await describe(admin, prefix + 'set')
  say('bad value:', await code(() => admin.alterConfigs({ resources: [change('retention.ms', 'many')] })))
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  say(JSON.stringify(metadata.topics[0].partitions.sort((a, b) => a.partitionId - b.partitionId)))
  say('topics', (await admin.listTopics()).filter((name) => name.startsWith(prefix)).sort())
  say('create again:', await admin.createTopics({ topics: [{ topic }] }))
  say('bad name:', await code(() => createTopic(admin, 'a b')))
  const more = (count) => admin.createPartitions({ topicPartitions: [{ topic, count }] })
  say('partitions:', await code(() => more(5)))
  say('fewer partitions:', await code(() => more(1)))
  // New partitions have no leader for a moment, which kafkajs does not wait for.
  const deadline = Date.now() + PATIENCE_MS
  while ((await code(() => admin.fetchTopicOffsets(topic))) !== 'none' && Date.now() < deadline) await pause(20)
  const drop = (offset) => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset }] })
  say('delete records:', await code(() => drop('100')))
  say('delete too many records:', await code(() => drop('100000')))
  const offsets = await admin.fetchTopicOffsets(topic)
  say(JSON.stringify(offsets.sort((a, b) => a.partition - b.partition)))
  const { brokers, controller } = await admin.describeCluster()
  say('brokers', brokers.length, 'controller', controller)
  const listed = (await admin.listGroups()).groups.filter((group) => group.groupId.startsWith(prefix))
  say(JSON.stringify(listed.sort((a, b) => (a.groupId < b.groupId ? -1 : 1))))
  const acls = { resourceType: 2, resourcePatternType: 1, operation: 1, permissionType: 1 }
  say('acls:', await code(() => admin.describeAcls(acls)))
  say('reassignments:', JSON.stringify(await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })))
  await pause(500) // members that left are gone
  say('delete groups:', await code(() => admin.deleteGroups([prefix + 'group', prefix + 'movers'])))
  say('delete no group:', await code(() => admin.deleteGroups([prefix + 'none'])))
  say('delete topics:', await code(() => admin.deleteTopics({ topics: [topic] })))
  say('delete no topic:', await code(() => admin.deleteTopics({ topics: [prefix + 'none'] })))
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  for (const step of [codecs, groups, transactions, fencing, move, administer]) {
    try {
      await step(admin)
    } catch (error) {
      error.message = `${step.name}: ${error.message}`
      throw error
    }
  }
  await admin.disconnect()
}

if (prefix) {
  main().then(
    () => process.exit(0),
    (error) => {
      console.error('kafkajs:', error.stack)
      process.exit(1)
    },
  )
} else {
  console.error('usage: node story.js BOOTSTRAP PREFIX')
  process.exit(2)
}
