import { counted } from '../../base/amounts.ts';
import type { SandboxEvents } from '../../sandbox/live/sandbox-events.ts';
import type { Model } from './model.ts';

type Fault = SandboxEvents['faults']['faults'][number];
type NewFault = Partial<Omit<Fault, 'id' | 'matched' | 'happened'>>;

/** Faults with a button. Each fault affects all API calls until the button is pressed again. */
const FAULTS: readonly { label: string; what: string; fault: NewFault }[] = [
  { label: '429', what: 'rate limit, Retry-After 10 s', fault: { path: '/v1/*', status: 429, retryAfter: 10 } },
  { label: '500', what: 'all responses are errors', fault: { path: '/v1/*', status: 500 } },
  { label: 'slow', what: 'each response takes 3 s', fault: { path: '/v1/*', latencyMs: 3000 } },
  {
    label: 'lost response',
    what: 'posts are stored, but their responses are lost',
    fault: { method: 'POST', path: '/v1/*', drop: 'after' },
  },
];

export function FaultButtons({ model }: { model: Model }) {
  const { outage = null, faults = [] } = model.faults ?? {};
  const others = faults.filter((fault) => !FAULTS.some((each) => isSame(fault, each.fault)));
  const toggleOutage = () =>
    model.act('POST', outage === null ? 'offline' : 'online', outage === null ? { mode: 'drop' } : {});
  return (
    <section aria-labelledby="faults">
      <h2 id="faults">Faults</h2>
      <div class="buttons">
        <Toggle label="outage" what="connections are dropped" isOn={outage !== null} press={toggleOutage} />
        {FAULTS.map(({ label, what, fault }) => {
          const set = faults.find((each) => isSame(each, fault));
          const press = () => (set ? model.act('DELETE', `faults/${set.id}`) : model.act('POST', 'faults', fault));
          return <Toggle key={label} label={label} what={what} isOn={set !== undefined} press={press} />;
        })}
        <button type="button" class="fault" onClick={() => void model.act('POST', 'tokens/expire', {})}>
          expire tokens <small>all valid tokens, once</small>
        </button>
      </div>
      {others.length > 0 && (
        <ul class="others">
          {others.map((fault) => (
            <li key={fault.id}>
              <code>{describe(fault)}</code> applied {counted(fault.happened, 'time')}{' '}
              <button type="button" onClick={() => void model.act('DELETE', `faults/${fault.id}`)}>
                Remove <span class="unseen">fault {fault.id}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Toggle({
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
      {label} <small>{isOn ? 'on, press to turn off' : what}</small>
    </button>
  );
}

function isSame(set: Fault, fault: NewFault): boolean {
  return describe(set) === describe(fault);
}

/** Returns the members of a fault, except counters, in a fixed order. */
function describe(fault: NewFault): string {
  const { id, matched, happened, ...members } = fault as Partial<Fault>;
  return JSON.stringify(Object.fromEntries(Object.entries(members).sort(([one], [other]) => (one < other ? -1 : 1))));
}
