"""Faults of driver, device and container as they are told in other languages than English."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finder, Finding, Skip
from gpudoc.facts.readers.model import Text
from gpudoc.facts.readers.words import Words

_DRIVER = words(
    r"驱动|驅動|ドライバ|드라이버|драйвер\w*",
    r"\b\w*treiber\w*\b",
    r"\bcontroladore?s?\b|\bpilotes?\b",
)
_TOO_OLD = words(
    r"太低|过低|過低|太旧|过旧|太舊|太老|过老|版本低|版本不够|老旧|需要(?:升级|更新)",
    r"古い|古く|낮|오래|устарел\w*|слишком стар\w*|стар\w+ (?:верси|драйвер)\w*",
    r"\bzu alt\w*|\bveraltet\w*",
    r"\b(?:muy|demasiado|muito) (?:antiguo|viejo|antigo|velho)s?|\bdesactualizad\w*|\bdesatualizad\w*|\bobsolet\w*",
    r"\btrop (?:vieux|ancien)\w*",
)
_NOT_THERE = words(
    r"没有?(?:安)?装|未安装|没有?(?:显卡)?驱动|掉了|丢了|丢失|加载不了|无法加载|不能加载|加载失败|没加载|失效",
    r"インストールされて(?:い)?ない|見つから|読み込め|설치되지|설치 ?안|로드되지|не установлен\w*|"
    r"не загружа\w*|слетел\w*|пропал\w*",
    r"\bnicht (?:installiert|geladen|gefunden)|\bfehlt\b",
    r"\bno (?:está|esta|estan|están) (?:instalad\w*|cargad\w*)|\bnão (?:está|foi) (?:instalad\w*|carregad\w*)",
    r"\bpas (?:installé|chargé)\w*",
)
_NO_GPU = words(
    r"用不了|无法使用|不能(?:使?用)|不可用|找不到|检测不到|识别不到|看不到|没有 ?GPU|没识别|使えない|"
    r"認識し(?:ない|ません)|見えない|"
    r"인식(?:하지|되지)|안 ?됨|не (?:видит|находит|работает|доступ\w*)",
    r"\b(?:keine|nicht) (?:gpu|cuda|verfügbar|gefunden|erkannt)",
    r"\bno (?:detecta|encuentra|reconoce|funciona|disponible)|\bnão (?:detecta|encontra|reconhece|funciona)",
    r"\bpas (?:détecté|disponible|reconnu)\w*",
    UNAVAILABLE,
    r"\bNVIDIA-SMI has failed|No CUDA GPUs|no CUDA-capable|Found no NVIDIA driver",
)
_PLAIN_USER = words(
    r"普通(?:用户|用戶|账[户号])|非 ?root|一般(?:用户|ユーザ\w*)|일반 ?(?:사용자|계정)|обычн\w+ пользовател\w*|"
    r"без (?:root|sudo)|без прав",
    r"\bnormale[rn]? (?:be)?nutzer|\busuario (?:normal|sin)|\busuário (?:normal|comum)",
)
_GPU = words(
    r"\bgpus?\b", r"\bcuda\b|\btorch\b|nvidia", r"显卡|顯卡|グラボ|그래픽|видеокарт\w*|\bgrafikkarte\w*|\bRTX\b"
)
_MACHINE = words(
    r"电脑|電腦|机器|主机|服务器|工作站|パソコン|マシン|컴퓨터|서버|компьютер\w*|\bПК\b",
    r"\b(?:rechner|computer|pc)\b|\bordenador|\bcomputador\w*|\bordinateur",
)
_GOES_DOWN = words(
    r"(?:自动|突然|直接|就会?|马上|立刻)(?:重启|重新启动|关机|断电|死机|黑屏)|死机|再起動|落ちる|落ちた|"
    r"재부팅|꺼(?:짐|져|지)|"
    r"перезагруж\w*|выключа\w*|вырубается",
    r"\bstartet\b[^.\n]{0,40}\bneu\b|\bneustart\w*|schaltet sich|stürzt ab",
    r"\bse (?:reinicia|apaga)|\breinicia\b|\bdesliga\b|\bredémarre",
)
_TRAINING = words(
    r"训练|訓練|学習|학습|трениров\w*|обуч\w+|\btraining\b|\btrain\w*|\bentren\w*|\btrein\w*|跑(?:模型|"
    r"代码|程序|实验)|\bentraîn\w*"
)
_SLEPT = words(
    r"休眠|睡眠|挂起|待机|合盖|唤醒|スリープ|절전|спящ\w+|\bсна\b|гибернац\w*",
    r"\bruhezustand|\bstandby|\bsuspens\w*|\bhibernaci\w*|\bmise en veille",
)
_SCREEN_DARK = words(
    r"黑屏|屏幕.{0,8}(?:黑|闪|卡住|花)|画面が?(?:暗|黒|真っ暗)|화면.{0,8}(?:꺼|검)|экран.{0,10}(?:гаснет|черн)\w*"
)
_CUDA_FAILS = words(r"CUDA error|unknown error|launch failure|CUDA ?(?:报错|错误|エラー|오류)")
_BOX = words(r"容器|コンテナ|컨테이너|контейнер\w*|\bdocker\b|镜像|\bcontenedor|\bcontêiner|\bconteneur")
_HOST = words(r"宿主机|主机上|物理机|ホスト|호스트|хост\w*|\bim host\b|\bhost\b|\banfitri\w+|\bhôte\b")
_LATER = words(
    r"一段时间|过(?:了)?(?:一会|几(?:个)?小时|几天)|几(?:个)?小时后|几天后|跑着跑着|しばらく|"
    r"시간이? ?지나|얼마 ?후|через (?:некоторое|пару|несколько)"
)
_VIRTUAL = words(r"虚拟机|虛擬機|云桌面|仮想マシン|가상 ?머신|виртуальн\w+|\bvgpu\b|\bGRID\b|-\d{1,2}[QC]\b")
_SLOW = words(r"变慢|很慢|特别慢|变得.{0,4}慢|卡顿|降速|遅く|느려|медленн\w*|тормоз\w*|\blangsam|\blento")
_SECURE_BOOT = words(
    r"安全启动|安全啟動|セキュアブート|보안 ?부팅|безопасн\w+ загрузк\w*|\bsecure boot\b|\barranque seguro"
)
_DROPPED = words(r"掉卡|掉了一张|少了一张|少一张|(?:显卡|GPU).{0,8}(?:消失|丢失|不见)|掉线")
_EXCLUSIVE = words(r"独占|排他モード|배타|эксклюзивн\w*")
_WELL = words(r"is_available\(\)\W{0,8}(?:是|返回|为|:)?\W{0,3}True", "正常训练", "version mismatch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A complaint of one or two sentences: all of `said` in them, and nothing of `unless` anywhere."""

    id: str
    said: tuple[Words, ...]
    sure: float
    unless: Words = _WELL
    around: int = 1
    explains: tuple[str, ...] = ()


_ALL = (
    Told(
        id="driver_too_old",
        said=(_DRIVER, _TOO_OLD),
        sure=0.8,
        explains=("driver_missing_or_not_loaded", "cpu_only_torch"),
    ),
    Told(id="driver_missing_or_not_loaded", said=(_DRIVER, _NOT_THERE), sure=0.72),
    Told(
        id="device_permission_denied",
        said=(_PLAIN_USER, _NO_GPU, _GPU),
        sure=0.84,
        explains=("container_without_gpu_access", "no_gpu_on_machine"),
    ),
    Told(id="gpu_hardware_fault", said=(_MACHINE, _GOES_DOWN, _TRAINING), sure=0.74),
    Told(id="uvm_broken_after_suspend", said=(_SLEPT, _NO_GPU), sure=0.82),
    Told(
        id="kernel_launch_timeout",
        said=(_SCREEN_DARK, _CUDA_FAILS),
        unless=words(r"重启|再起動|재부팅|перезагр\w*|关机|\bXid\b|休眠"),
        sure=0.74,
        explains=("uvm_broken_after_suspend", "nvidia_uvm_missing"),
    ),
    Told(id="container_without_gpu_access", said=(_BOX, _NO_GPU, _HOST), unless=words("Unknown Error"), sure=0.78),
    Told(
        id="container_lost_gpu_cgroup",
        said=(_BOX, _LATER, _NO_GPU),
        unless=words(r"fallen off", r"\bXid\b", "out of memory"),
        sure=0.84,
        explains=("container_without_gpu_access",),
    ),
    Told(id="vgpu_unlicensed", said=(_VIRTUAL, _SLOW), unless=words(r"HAMi|gpumem|\bcpu 占用"), sure=0.72),
    Told(
        id="secure_boot_blocks_module",
        said=(_SECURE_BOOT, _DRIVER),
        unless=words(r"已关闭|关闭了安全启动|已经关|отключ\w*|SecureBoot disabled"),
        sure=0.86,
    ),
    Told(id="gpu_fallen_off_bus", said=(_DROPPED,), unless=words(r"容器|docker|休眠|内核更新"), sure=0.74),
    Told(id="compute_mode_exclusive", said=(_EXCLUSIVE, _GPU), sure=0.8),
)


def _finder(told: Told) -> Finder:
    def find(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
        del evidence
        first = told.said[0]
        place = together(text, first, *told.said[1:], around=told.around) if text.find(first) else None
        if place is not None and text.find(told.unless) is None:
            yield Finding(id=told.id, confidence=told.sure, evidence=(quote(place),), explains=told.explains)

    return text_finder(told.id, find)


FINDERS = tuple(_finder(told) for told in _ALL)
