import type { SandboxEvents } from '../../sandbox/live/sandbox-events.ts';
import type { Model } from './model.ts';

type Fault = SandboxEvents['faults']['faults'][number];
type NewFault = Partial<Omit<Fault, 'id' | 'matched' | 'happened'>>;

/** Faults of one press; each concerns every call of the API until it is pressed again. */
const FAULTS: readonly { label: string; what: string; fault: NewFault }[] = [
  { label: '429', what: 'too many requests, with 10 s to wait', fault: { path: '/v1/*', status: 429, retryAfter: 10 } },
  { label: '500', what: 'every answer is an error', fault: { path: '/v1/*', status: 500 } },
  { label: 'slow', what: 'each answer takes 3 s', fault: { path: '/v1/*', latencyMs: 3000 } },
  {
    label: 'lost answer',
    what: 'what is posted is done, and nobody hears of it',
    fault: { method: 'POST', path: '/v1/*', drop: 'after' },
  },
];

export function FaultButtons({ model }: { model: Model }) {
  const { outage = null, faults = [] } = model.faults ?? {};
  const others = faults.filter((fault) => !FAULTS.some((each) => isSame(fault, each.fault)));
  const goAway = () =>
    model.act('POST', outage === null ? 'offline' : 'online', outage === null ? { mode: 'drop' } : {});
  return (
    <section aria-labelledby="faults">
      <h2 id="faults">Faults</h2>
      <div class="buttons">
        <Pressed label="away" what="connections break" isOn={outage !== null} press={goAway} />
        {FAULTS.map(({ label, what, fault }) => {
          const set = faults.find((each) => isSame(each, fault));
          const press = () => (set ? model.act('DELETE', `faults/${set.id}`) : model.act('POST', 'faults', fault));
          return <Pressed key={label} label={label} what={what} isOn={set !== undefined} press={press} />;
        })}
        <button type="button" class="fault" onClick={() => void model.act('POST', 'tokens/expire', {})}>
          tokens expire <small>once, all of them</small>
        </button>
      </div>
      {others.length > 0 && (
        <ul class="others">
          {others.map((fault) => (
            <li key={fault.id}>
              <code>{describe(fault)}</code> happened {fault.happened} times{' '}
              <button type="button" onClick={() => void model.act('DELETE', `faults/${fault.id}`)}>
                take away <span class="unseen">fault {fault.id}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Pressed({
  label,
  what,
  isOn,
  press,
}: {
  label: string;
  what: string;
  isOn: boolean;
  press(): Promise<boolean>;
}) {
  return (
    <button type="button" class="fault" aria-pressed={isOn} onClick={() => void press()}>
      {label} <small>{isOn ? 'on: press to end it' : what}</small>
    </button>
  );
}

function isSame(set: Fault, { ...wanted }: NewFault): boolean {
  return describe(set) === describe(wanted);
}

/** Its members but those that count, in one order. */
function describe(fault: NewFault): string {
  const { id, matched, happened, ...members } = fault as Partial<Fault>;
  return JSON.stringify(Object.fromEntries(Object.entries(members).sort(([one], [other]) => (one < other ? -1 : 1))));
}
