import { z } from 'zod';

export interface ImageFacts {
  image: string;
  /** Compressed bytes of all layers; null when the registry did not tell. */
  bytes: number | null;
  /** Architectures that the registry has it for. */
  architectures: string[];
  problem: string | null;
}

const Manifest = z.looseObject({
  manifests: z
    .array(z.looseObject({ digest: z.string(), platform: z.looseObject({ architecture: z.string() }).optional() }))
    .optional(),
  layers: z.array(z.looseObject({ size: z.number() })).optional(),
  config: z.looseObject({ digest: z.string() }).optional(),
});

const ACCEPT = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

/** What a registry says of an image, by the OCI distribution specification; nothing is pulled. Never throws. */
export async function imageFacts(image: string, { signal }: { signal: AbortSignal }): Promise<ImageFacts> {
  try {
    return await askRegistry(image, signal);
  } catch (error) {
    signal.throwIfAborted();
    const cause = (error as { cause?: Error }).cause?.message ?? (error as Error).message;
    return { image, bytes: null, architectures: [], problem: cause };
  }
}

async function askRegistry(image: string, signal: AbortSignal): Promise<ImageFacts> {
  const { registry, name, reference } = parseImage(image);
  const scheme = /^(localhost|127\.|\[::1\])/.test(registry) ? 'http' : 'https';
  const base = `${scheme}://${registry}/v2/${name}`;
  let token: string | null = null;
  const get = async (path: string): Promise<unknown> => {
    const ask = (): Promise<Response> =>
      fetch(`${base}/${path}`, {
        headers: { accept: ACCEPT, ...(token ? { authorization: `Bearer ${token}` } : {}) },
        signal: AbortSignal.any([signal, AbortSignal.timeout(30_000)]),
      });
    let response = await ask();
    if (response.status === 401 && token === null) {
      token = await anonymousToken(response.headers.get('www-authenticate') ?? '', signal);
      response = await ask();
    }
    if (!response.ok) throw new Error(`${registry} answers ${response.status} for ${name}:${reference}`);
    return response.json();
  };
  const manifest = Manifest.parse(await get(`manifests/${reference}`));
  if (manifest.manifests) {
    const platforms = manifest.manifests.filter(({ platform }) => platform && platform.architecture !== 'unknown');
    const amd64 = platforms.find(({ platform }) => platform!.architecture === 'amd64') ?? platforms[0];
    const inner = amd64 ? Manifest.parse(await get(`manifests/${amd64.digest}`)) : manifest;
    return {
      image,
      bytes: sizeOf(inner),
      architectures: platforms.map(({ platform }) => platform!.architecture),
      problem: null,
    };
  }
  const config = z.looseObject({ architecture: z.string().optional() });
  const { architecture } = manifest.config ? config.parse(await get(`blobs/${manifest.config.digest}`)) : {};
  return { image, bytes: sizeOf(manifest), architectures: architecture ? [architecture] : [], problem: null };
}

const sizeOf = ({ layers }: z.infer<typeof Manifest>): number | null =>
  layers ? layers.reduce((sum, { size }) => sum + size, 0) : null;

/** Docker's rules: no dot, colon or `localhost` in the first part means Docker Hub. */
function parseImage(image: string): { registry: string; name: string; reference: string } {
  const first = image.split('/')[0]!;
  const own = image.includes('/') && (/[.:]/.test(first) || first === 'localhost');
  const rest = own ? image.slice(first.length + 1) : image.includes('/') ? image : `library/${image}`;
  const match = /^(.+?)(?:@(.+)|:([^:/]+))?$/.exec(rest);
  return {
    registry: own ? first : 'registry-1.docker.io',
    name: match?.[1] ?? rest,
    reference: match?.[2] ?? match?.[3] ?? 'latest',
  };
}

async function anonymousToken(challenge: string, signal: AbortSignal): Promise<string> {
  const field = (name: string): string | undefined => new RegExp(`${name}="([^"]*)"`).exec(challenge)?.[1];
  const realm = field('realm');
  if (!realm) throw new Error('the registry wants a login');
  const query = new URLSearchParams({ service: field('service') ?? '', scope: field('scope') ?? '' });
  const response = await fetch(`${realm}?${query}`, { signal });
  if (!response.ok) throw new Error(`the registry gives no token (${response.status})`);
  const { token, access_token } = (await response.json()) as { token?: string; access_token?: string };
  return token ?? access_token ?? '';
}
