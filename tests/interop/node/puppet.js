/* A puppet: the unchanged Node client, led by a test.
 *
 * Commands come on standard input, one JSON object a line: {"id": 1, "do": "send", …}. Every command is answered by one
 * line on standard output, {"id": 1, "result": …} or {"id": 1, "error": "…"}. What happens by itself is a line with
 * "event": a message that a consumer got, a message of a flood that was acknowledged. Producers and consumers have
 * names that the test gives them; each is a client instance of its own, as if in a process of its own.
 *
 * End of input ends the program in good order. What the client logs goes to standard error.
 */
'use strict';

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const BODY_SHOWN = 1024; // longer bodies are told by size and digest only
const FLOOD_WORKERS = 4;

const players = new Map();

const logger = {
  debug() {},
  info() {},
  warn: (...args) => console.error('WARN', ...args),
  error: (...args) => console.error('ERROR', ...args),
};

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

/* The intervals are options of the client; shorter ones save the test half a minute of waiting. The HTTP client would
 * be asked for the name server's address, which is given here. */
function common(c) {
  return {
    nameSrv: c.names,
    httpclient: { request() { throw new Error('no HTTP in this test'); } },
    instanceName: c.name,
    logger,
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    rebalanceInterval: 1000,
    persistConsumerOffsetInterval: 1000,
  };
}

function find(name) {
  const found = players.get(name);
  if (!found) {
    throw new Error(`nothing is called ${name}`);
  }
  return found;
}

async function startProducer(c) {
  const producer = new Producer(Object.assign(common(c), { producerGroup: c.group }));
  producer.on('error', err => console.error('producer', c.name, err));
  await producer.ready();
  players.set(c.name, producer);
}

function build(m) {
  const message = new Message(m.topic, m.tag || '', Buffer.from(m.body || '', 'base64'));
  if (m.keys) {
    message.keys = m.keys;
  }
  if (m.delay) {
    message.delayTimeLevel = m.delay;
  }
  if (m.shard) {
    message.shardingKey = m.shard;
  }
  Object.assign(message.properties, m.properties);
  return message;
}

async function sendOne(producer, m) {
  const result = await producer.send(build(m));
  return {
    status: result.sendStatus,
    offset_id: result.msgId,
    broker: result.messageQueue.brokerName,
    queue: Number(result.messageQueue.queueId),
    offset: result.queueOffset,
  };
}

/* Sends one after the other, or (mode "async") all before the first is waited for. */
async function send(c) {
  const producer = find(c.name);
  if (c.mode === 'async') {
    return await Promise.all(c.messages.map(m => sendOne(producer, m)));
  }
  const results = [];
  for (const m of c.messages) {
    results.push(await sendOne(producer, m));
  }
  return results;
}

/* Sends numbered messages, each again until it is acknowledged, and says which place each got. It takes its time, at
 * least 1 ms a message and worker, so that something can happen in its midst on a fast machine too. */
async function flood(c) {
  const producer = find(c.name);
  const deadline = Date.now() + c.seconds * 1000;
  let next = c.first;
  const worker = async () => {
    while (next < c.first + c.count) {
      const number = next++;
      const sent = await insist(producer, c, number, deadline);
      say({ event: 'acked', name: c.name, number, sent });
      await pause(1);
    }
  };
  await Promise.all(Array.from({ length: FLOOD_WORKERS }, worker));
}

async function insist(producer, c, number, deadline) {
  for (;;) {
    try {
      return await sendOne(producer, { topic: c.topic, body: Buffer.from(String(number)).toString('base64') });
    } catch (err) {
      if (Date.now() > deadline) {
        throw new Error(`message ${number} is not acknowledged: ${err.message}`);
      }
      await pause(50);
    }
  }
}

const BEGIN = {
  last: 'CONSUME_FROM_LAST_OFFSET',
  first: 'CONSUME_FROM_FIRST_OFFSET',
  timestamp: 'CONSUME_FROM_TIMESTAMP',
};

async function startConsumer(c) {
  const options = Object.assign(common(c), {
    consumerGroup: c.group,
    isBroadcast: !!c.broadcast,
    consumeFromWhere: BEGIN[c.from || 'last'],
  });
  if (c.timestamp) {
    options.consumeTimestamp = c.timestamp;
  }
  if (c.max_reconsume !== undefined) {
    options.maxReconsumeTimes = c.max_reconsume;
  }
  const consumer = new Consumer(options);
  consumer.on('error', err => console.error('consumer', c.name, err.message));
  const expression = c.kind === 'SQL92' ? { expressionType: 'SQL92', subString: c.expression } : c.expression || '*';
  consumer.subscribe(c.topic, expression, async message => await consume(c, message));
  await consumer.ready();
  players.set(c.name, consumer);
}

async function consume(c, message) {
  const body = message.body || Buffer.alloc(0);
  say({
    event: 'message',
    name: c.name,
    topic: message.topic,
    id: message.properties.UNIQ_KEY || message.originMessageId || message.msgId,
    offset_id: message.msgId,
    queue: message.queueId,
    offset: message.queueOffset,
    tag: message.tags,
    keys: message.keys,
    properties: message.properties,
    reconsume: message.reconsumeTimes,
    body: body.length <= BODY_SHOWN ? body.toString() : '',
    size: body.length,
    digest: crypto.createHash('sha256').update(body).digest('hex'),
    at: Date.now(),
  });
  if (message.reconsumeTimes < (c.fail_below || 0)) {
    throw new Error(`the test wants delivery ${message.reconsumeTimes} to fail`);
  }
  if (c.hang_at && body.toString().startsWith(c.hang_at)) {
    await new Promise(() => {});
  }
}

async function stop(c) {
  const member = find(c.name);
  players.delete(c.name);
  await member.close();
}

/* The client books a delivery before it reads the next command. */
async function settle(c) {
  find(c.name);
}

const handlers = { producer: startProducer, send, flood, consumer: startConsumer, settle, stop };

async function perform(line) {
  const c = JSON.parse(line);
  try {
    if (!handlers[c.do]) {
      throw new Error(`no such command: ${c.do}`);
    }
    const result = await handlers[c.do](c);
    say({ id: c.id, result: result === undefined ? null : result });
  } catch (err) {
    say({ id: c.id, error: err.message || String(err) });
  }
}

async function leave() {
  for (const name of Array.from(players.keys())) {
    await stop({ name }).catch(err => console.error('cannot stop', name, err));
  }
  process.exit(0);
}

/* A consumer that is closed in the middle of a rebalance may dial once more, with nobody listening for the failure. */
process.on('uncaughtException', err => {
  console.error('uncaught', err);
  if (err.code !== 'ECONNREFUSED' && err.code !== 'ECONNRESET') {
    process.exit(1);
  }
});

const input = readline.createInterface({ input: process.stdin });
input.on('line', perform);
input.on('close', leave);
