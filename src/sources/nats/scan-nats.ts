import { UsageError } from '../../base/errors.ts';
import type { Listening } from '../../broker/listening.ts';
import { asSubject, asTopic } from '../../broker/nats/subject.ts';
import { wrongSubject } from '../../config/subject.ts';
import { type MqttScan, scanMqtt } from '../mqtt/scan.ts';
import type { ScanStep } from '../source-kind.ts';

/** What streams keep and servers send within a while, as `scanMqtt` reads messages: lines for tags.yaml with `subject`. */
export async function* scanNats(
  broker: Listening,
  { what, ...rest }: Omit<MqttScan, 'broker'>,
): AsyncGenerator<ScanStep> {
  for (const subject of what) {
    const wrong = wrongSubject(subject, 'wildcards');
    if (wrong !== undefined) throw new UsageError(`"${subject}" ${wrong}`, 'Write for example plant.>');
  }
  for await (const step of scanMqtt({ broker, what: what.map(asTopic), ...rest })) {
    if (!('found' in step)) yield step;
    else {
      const { topic, ...members } = step.found.members;
      yield { found: { ...step.found, members: { subject: asSubject(String(topic)), ...members } } };
    }
  }
}
