/**
 * Baseline with MQTT.js: subscribes, parses each message as JSON, reads the value and time, confirms immediately, and
 * stores nothing. A message can also be a list of values with times. Sends its parent a message after the subscription,
 * and then the number of values on request. Usage: `bare-subscriber.ts PORT FILTER…`.
 */
import { connect } from 'mqtt';

const [port, ...filters] = process.argv.slice(2) as [string, ...string[]];
const client = connect(`mqtt://127.0.0.1:${port}`, {
  clean: false,
  clientId: 'bare',
  protocolVersion: 5,
  properties: { sessionExpiryInterval: 3_600 },
});
interface Sample {
  v: number;
  t: number;
}

let taken = 0;
let sum = 0;
const take = ({ v, t }: Sample) => {
  sum += v + t;
  taken++;
};
client.on('message', (_, payload) => {
  const read = JSON.parse(payload.toString()) as Sample | Sample[];
  if (Array.isArray(read)) for (const one of read) take(one);
  else take(read);
});
client.on('connect', () => client.subscribe(filters, { qos: 1 }, () => process.send!('subscribed')));
process.on('message', () => process.send!(Number.isFinite(sum) ? taken : 0));
