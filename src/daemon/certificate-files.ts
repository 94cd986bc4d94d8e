import type { Certificates } from '../base/certificates.ts';
import type { CertificateFiles } from '../base/inbound/certificate.ts';
import type { Settings } from '../config/settings.ts';

type Listener = 'webhook' | 'ingest' | 'ops';

export type TlsSettings = Partial<Pick<Settings, `${Listener}Tls${'Cert' | 'Key'}`>>;

/** The PEM files that a listener speaks https with; `undefined` where it speaks http. */
export function certificateFiles(
  settings: TlsSettings,
  listener: Listener,
  certificates?: Certificates,
): CertificateFiles | undefined {
  const certFile = settings[`${listener}TlsCert`];
  const keyFile = settings[`${listener}TlsKey`];
  if (certFile === undefined || keyFile === undefined) return undefined;
  const inForce = (endsMs: number | undefined) => certificates?.note(listener, endsMs);
  return { certFile, keyFile, settings: `${listener.toUpperCase()}_TLS`, inForce };
}
