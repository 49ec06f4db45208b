#!/bin/bash
# The same as soak_rank.py, as a program that is not Python: LINES SECONDS good|exit:N
for ((number = 0; number < $1; number++)); do
  echo "$HPCKIT_RESTART $RANK $number"
done
[[ $2 != hold ]] || sleep 86400
sleep "$2"
[[ $3 != exit:* ]] || exit "${3#exit:}"
echo "$HPCKIT_RESTART $RANK end"
