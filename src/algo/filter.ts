/** Why an attempt is left out before anything else is asked of it (Orchard paper, section 3.2); null when it stays. */
export function filterReason(
  attempt: { tokens: number; unknownTools: number; unparsable: number },
  { maxTokens }: { maxTokens: number },
): 'too_long' | 'unknown_tool' | 'unparsable_action' | null {
  if (attempt.tokens > maxTokens) return 'too_long';
  if (attempt.unknownTools > 0) return 'unknown_tool';
  if (attempt.unparsable > 0) return 'unparsable_action';
  return null;
}
