-- time_bucket: the number of the bucket of a time in microseconds, found in five comparisons; null has none.
case when {value} is not null then
  case when {value} <= 8192000 then
    case when {value} <= 64000 then
      case when {value} <= 8000 then
        case when {value} <= 2000 then
          case when {value} <= 1000 then 0 else 1 end
        else
          case when {value} <= 4000 then 2 else 3 end
        end
      else
        case when {value} <= 32000 then
          case when {value} <= 16000 then 4 else 5 end
        else
          6
        end
      end
    else
      case when {value} <= 1024000 then
        case when {value} <= 256000 then
          case when {value} <= 128000 then 7 else 8 end
        else
          case when {value} <= 512000 then 9 else 10 end
        end
      else
        case when {value} <= 4096000 then
          case when {value} <= 2048000 then 11 else 12 end
        else
          13
        end
      end
    end
  else
    case when {value} <= 1048576000 then
      case when {value} <= 131072000 then
        case when {value} <= 32768000 then
          case when {value} <= 16384000 then 14 else 15 end
        else
          case when {value} <= 65536000 then 16 else 17 end
        end
      else
        case when {value} <= 524288000 then
          case when {value} <= 262144000 then 18 else 19 end
        else
          20
        end
      end
    else
      case when {value} <= 8388608000 then
        case when {value} <= 4194304000 then
          case when {value} <= 2097152000 then 21 else 22 end
        else
          23
        end
      else
        case when {value} <= 33554432000 then
          case when {value} <= 16777216000 then 24 else 25 end
        else
          26
        end
      end
    end
  end
end
