import { z } from 'zod';

/** SWE-bench's prediction row. `model_patch_base64` carries a patch that is not valid UTF-8, byte for byte. */
export const Prediction = z.object({
  instance_id: z.string(),
  model_name_or_path: z.string(),
  model_patch: z.string(),
  model_patch_base64: z.string().optional(),
});
export type Prediction = z.infer<typeof Prediction>;
