import { nounFor } from '../base/amounts.ts';
import type { DropForecast } from '../buffer/space/dropping.ts';
import { readSettingsLeniently } from '../config/configuration.ts';
import { type Problem, Problems } from '../config/problem.ts';
import { askDaemon, daemonPlace } from './control-client.ts';
import { serviceEnvironment } from './service-folder.ts';

/** Beside a running daemon: a warning of what its buffer would lose by the BUFFER_MAX_BYTES that the files name. */
export async function warnOfDrops(config: string | undefined, directory: string): Promise<readonly Problem[]> {
  const environment = serviceEnvironment(directory, process.env);
  const { settings, placeOf } = readSettingsLeniently({ directory, environment });
  const maxBytes = settings.bufferMaxBytes ?? 0;
  if (maxBytes === 0 || settings.bufferFull !== 'drop-oldest') return [];
  let drops: DropForecast;
  try {
    drops = await askDaemon(daemonPlace(config, environment), 'buffer/forecast', { max_bytes: maxBytes });
  } catch {
    // No daemon, or not for this user: the files stand on their own.
    return [];
  }
  const parts = [
    ...(drops.values > 0 ? [`about ${drops.values} ${nounFor(drops.values, 'value')} not posted`] : []),
    ...(drops.quarantined > 0 ? [`about ${drops.quarantined} in quarantine`] : []),
  ];
  if (parts.length === 0) return [];
  const problems = new Problems();
  problems.warning(
    placeOf('BUFFER_MAX_BYTES'),
    `BUFFER_MAX_BYTES ${maxBytes} would drop ${parts.join(' and ')} with the next reload or restart`,
    'let the buffer drain first, or write a larger bound',
  );
  return problems.warnings;
}
