import { type CertificateInUse, endsSoon, expiryText, pemEndsMs } from '../../base/certificates.ts';
import { codeOf } from '../../base/errors.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

/** Certificates of the listeners, and of all that the running agent uses beside the platform's, which `network.tls` looks at. */
export function checkCertificates({ clock, daemon, settings }: Consultation): CheckLine[] {
  const nowMs = clock.wallMs();
  if (daemon) {
    const inUse = daemon.certificates ?? [];
    return inUse
      .filter(({ use }) => use !== 'platform')
      .map(({ use, expires }) => lineOf({ use, endsMs: Date.parse(expires) }, nowMs));
  }
  const files = { ops: settings.opsTlsCert, ingest: settings.ingestTlsCert, webhook: settings.webhookTlsCert };
  return Object.entries(files).flatMap(([use, file]) => (file === undefined ? [] : [fileLine(use, file, nowMs)]));
}

function fileLine(use: string, file: string, nowMs: number): CheckLine {
  try {
    const endsMs = pemEndsMs(readRegularFileSync(file).bytes);
    if (endsMs !== undefined) return lineOf({ use, endsMs }, nowMs);
    return failure('certificates', `${file} holds no certificate in PEM form`, 'Name a PEM file that does.');
  } catch (error) {
    return failure(
      'certificates',
      `${file} cannot be read (${codeOf(error)})`,
      'Name a PEM file that this user may read.',
    );
  }
}

function lineOf({ use, endsMs }: CertificateInUse, nowMs: number): CheckLine {
  const text = `the certificate of ${use} ${expiryText(endsMs, nowMs)} (${new Date(endsMs).toISOString()})`;
  if (!endsSoon(endsMs, nowMs)) return ok('certificates', text);
  const next = use.startsWith('source ')
    ? 'Renew the files ca and cert of the source, or the certificate of its server: the earliest counts.'
    : `Renew the file of ${use.toUpperCase()}_TLS_CERT; the agent takes it up within ten seconds.`;
  return endsMs > nowMs ? warning('certificates', text, next) : failure('certificates', text, next);
}
